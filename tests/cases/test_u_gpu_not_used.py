"""U. GPU not used.

- A CUDA build that computes on the CPU because no layer count was passed: below, with an engine
  that records what it is asked for. The device shows in `session.device` and the status line
  (tests/tui/test_app.py).
- A CPU-only build that takes n_gpu_layers and ignores it: below.
- The draft was not put on the GPU first: tests/unit/test_memory_plan.py,
  test_where_the_target_does_not_fit_the_draft_comes_first; the plan is shown by `run --verbose`
  and `doctor` (tests/cases/test_v_low_memory.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from localspec.errors import ModelFileError
from localspec.llama.model import Model
from localspec.session.options import LoadOptions
from localspec.session.session import Session


def test_all_layers_are_asked_for_on_purpose(
    tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(path: bytes, params: Any) -> None:
        asked.append(params.n_gpu_layers)

    monkeypatch.setattr(llama_cpp, "llama_supports_gpu_offload", lambda: True)
    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", refuse)
    assert LoadOptions().n_gpu_layers == LoadOptions().n_gpu_layers_draft == -1
    for n in (-1, 7):
        with pytest.raises(ModelFileError):
            Model(tiny_target, n_gpu_layers=n)
    assert asked == [-1, 7]


def test_a_build_without_gpus_says_that_layers_are_ignored(tiny_target: Path) -> None:
    if llama_cpp.llama_supports_gpu_offload():
        pytest.skip("this build has a GPU to put them on")
    with Session(tiny_target, options=LoadOptions(n_gpu_layers=9)) as session:
        assert session.device == "CPU"
        assert any("no GPU support" in note for note in session.notes)
