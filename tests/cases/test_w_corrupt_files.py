"""W. Corrupt / truncated GGUF.

- Truncated file: below. The chat stays alive when a model does not load:
  tests/unit/test_talk.py.
- A Git LFS pointer: below.
- A complete file blamed as truncated, then a stand-in engine: an architecture that this build does
  not know is named (tests/tiny/test_vetting.py, test_an_unknown_architecture_is_named), and there
  is no other engine to fall back to. A mixture of experts is priced and checked as any model
  (tests/unit/test_model_checks.py, test_experts).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import ModelFileError
from localspec.session.session import Session


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("kept", ["10 %", "50 %", "all but one byte", "nothing"])
def test_a_truncated_file(tiny_target: Path, tmp_path: Path, kept: str, role: str) -> None:
    whole = tiny_target.read_bytes().rstrip(b"\0")
    n = {"10 %": len(whole) // 10, "50 %": len(whole) // 2, "nothing": 0}.get(kept, len(whole) - 1)
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[:n])
    paths = (path, tiny_target) if role == "target" else (tiny_target, path)
    with pytest.raises(ModelFileError) as caught:
        Session(*paths)
    words = str(caught.value)
    assert "etch it again" in words
    assert f"{n:,} bytes" in words
    if kept in ("50 %", "all but one byte"):
        assert "its tensors end at byte" in words  # the real size beside the expected one


def test_a_git_lfs_pointer(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1117320768\n")
    with pytest.raises(ModelFileError, match="Git LFS pointer, not the model: run `git lfs pull`"):
        Session(path)
