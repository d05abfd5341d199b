"""Z. Paths.

- A folder in Cyrillic, Chinese and accents, for target and draft, relative and from "~": below. On
  Windows os.fsencode gives UTF-8, which is what llama.cpp opens; not run here.
- Temporary and cache folders with such names: below.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from localspec.llama.architectures import knows_architecture
from localspec.llama.probe import probe
from localspec.models.hub import cached_gguf_files
from localspec.models.references import resolve
from localspec.session.session import Session, load

NAME = "Модели 模型\u3000é"


@pytest.fixture
def folder(tmp_path: Path, tiny_target: Path, tiny_draft: Path) -> Path:
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "цель.gguf").write_bytes(tiny_target.read_bytes())
    (folder / "草稿.gguf").write_bytes(tiny_draft.read_bytes())
    return folder


def test_a_pair_in_any_script(folder: Path) -> None:
    with Session(folder / "цель.gguf", folder / "草稿.gguf") as session:
        assert session.has_draft_model
        assert session.complete([1, 270], max_tokens=3).stats.predicted_n == 3


def test_relative_and_home_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    load("цель.gguf", "草稿.gguf").close()
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USERPROFILE", str(folder.parent))
    assert resolve(f"~/{NAME}/цель.gguf") == folder / "цель.gguf"


def test_temporary_and_cache_folders_in_any_script(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    knows_architecture.cache_clear()
    assert knows_architecture("llama")
    assert not knows_architecture("llama98")
    assert probe(folder / "цель.gguf", 1000) is None
    snapshot = folder / "hub" / "models--a--b" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "m.gguf").write_bytes((folder / "цель.gguf").read_bytes())
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    (found,) = cached_gguf_files()
    Session(found).close()
