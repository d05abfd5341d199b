"""What a session says about a context that is not the one asked for, or more than was trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec import LoadOptions, Session
from tests import tiny_models


@pytest.mark.parametrize(
    ("n_ctx", "n_ctx_train", "told"),
    [
        (None, 500, None),  # 512 stand for the 500
        (500, 500, "512 tokens instead of 500"),
        (512, 500, None),
        (768, 500, "n_ctx 768 is more than the 500 tokens"),
        (1024, 1024, None),
    ],
)
def test_what_is_told(
    tmp_path: Path, n_ctx: int | None, n_ctx_train: int, told: str | None
) -> None:
    path = tiny_models.write_llama(tmp_path / "target.gguf", n_ctx_train=n_ctx_train)
    with Session(path, options=LoadOptions(n_ctx=n_ctx)) as session:
        notes = [note for note in session.notes if "context" in note or "n_ctx" in note]
    if told is None:
        assert notes == []
    else:
        assert len(notes) == 1
        assert told in notes[0]
