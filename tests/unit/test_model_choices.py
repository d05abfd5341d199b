"""What the windows of the chat offer: files, levels made here, and why one does not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from localspec.chat.model_choices import drafts, targets
from localspec.llama.quantize import quantize
from localspec.models.catalog import catalog
from localspec.models.made_levels import levels_folder
from tests.tiny_models import write_llama


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    levels_folder().mkdir(parents=True)
    return tmp_path / "cache"


def test_fetched_files_and_made_levels_are_offered(cache: Path, tiny_target: Path) -> None:
    fetched, level = cache / "big.gguf", levels_folder() / "big.as-Q4_0.0123456789.gguf"
    for path in (fetched, level):
        shutil.copy(tiny_target, path)
    (cache / "broken.gguf").write_bytes(b"GGUF, or not")
    (cache / "link.gguf").symlink_to(fetched)
    offered = [candidate.reference for candidate in targets()]
    assert offered[0] == "qwen2.5-coder-1.5b"
    assert [name for name in offered if str(cache) in name] == [str(fetched), str(level)]


def test_a_draft_that_does_not_fit_says_why_and_comes_last(cache: Path, tiny_target: Path) -> None:
    target = cache / "a-target.gguf"
    shutil.copy(tiny_target, target)
    shutil.copy(tiny_target, cache / "as-large.gguf")
    write_llama(cache / "foreign.gguf", vocab="plain")
    quantize(target, cache / "small.gguf", "Q8_0", n_threads=1)
    found = {Path(c.reference).name: c for c in drafts(target) if str(cache) in c.reference}
    assert next(iter(found)) == "small.gguf"
    assert found["small.gguf"].refused is None
    assert found["as-large.gguf"].refused == "not smaller than the target"
    assert "token" in (found["foreign.gguf"].refused or "")
    assert "a-target.gguf" not in found
    known = catalog()
    to_fetch = {c.reference for c in drafts(target) if c.n_bytes != 0}
    assert to_fetch == {pair.draft.name for pair in known.pairs.values()}
