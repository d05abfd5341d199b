"""Y. Wrong kind of file: told by the metadata before any load, for both roles.

All three lines are below; more kinds (draft heads, speech, diffusion, encoder-decoder, vocabulary
alone) are in tests/unit/test_gguf_header.py and tests/unit/test_model_checks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.errors import ModelKindError
from localspec.session.session import Session
from tests import tiny_models


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(
    ("write", "words"),
    [
        (tiny_models.write_projector, "it is a vision projector. Give the language model that it"),
        (tiny_models.write_adapter, "it is a LoRA adapter. A LoRA needs its base model"),
        (tiny_models.write_bert, "it is an embedding model. Give a model that generates text"),
    ],
)
def test_a_file_that_cannot_write(
    tiny_target: Path, tmp_path: Path, write: Callable[[Path], Path], words: str, role: str
) -> None:
    other = write(tmp_path / "other.gguf")
    paths = (other, tiny_target) if role == "target" else (tiny_target, other)
    with pytest.raises(ModelKindError, match=f"cannot be the {role}: {words}"):
        Session(*paths)
