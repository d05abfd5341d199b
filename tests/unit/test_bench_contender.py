"""Labels: one for each file, whatever the files are called and wherever they lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.bench.plan import ModelFile, level_label, model_file, unique_labels


def made(label: str, path: str, source: str | None = None) -> ModelFile:
    return ModelFile(label, Path(path), path, source=Path(source) if source else None)


def labels(*files: ModelFile) -> list[str]:
    return [found.label for found in unique_labels(files)]


def test_two_files_never_share_a_label() -> None:
    assert labels(made("m", "/p/a/m.gguf"), made("n", "/p/a/n.gguf")) == ["m", "n"]
    assert labels(made("m", "/p/m.gguf"), made("m", "/q/m.gguf")) == ["p/m", "q/m"]
    assert labels(made("m", "/p/a/m.gguf"), made("m", "/q/a/m.gguf")) == ["p/a/m", "q/a/m"]
    assert labels(made("m", "/m.gguf"), made("m", "/q/m.gguf")) == ["m", "q/m"]
    assert labels(made("m", "/p/m.gguf"), made("m", "/p/m.gguf")) == ["m"]
    assert labels(made("none", "/p/none.gguf")) == ["p/none"]


def test_levels_are_told_apart_by_their_sources() -> None:
    assert labels(
        made("m Q4_0", "/c/levels/m.1.gguf", "/p/m-F16.gguf"),
        made("m Q4_0", "/c/levels/m.2.gguf", "/q/m-F16.gguf"),
    ) == ["p/m Q4_0", "q/m Q4_0"]
    assert labels(
        made("m Q4_0", "/c/levels/m.1.gguf", "/p/m-F16.gguf"),
        made("m Q4_0", "/c/levels/m.2.gguf", "/p/m-BF16.gguf"),
    ) == ["m Q4_0 from m-F16.gguf", "m Q4_0 from m-BF16.gguf"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_a_label_is_one_harmless_line() -> None:
    names = [b"a\nb.gguf", b"a\tb.gguf", b"a`b.gguf", b"a\x1bb.gguf", b"a\xffb.gguf"]
    shown = ["a\u240ab", "a\u2409b", "a'b", "a\u241bb", "a\ufffdb"]
    paths = [Path(os.fsdecode(name)) for name in names]
    assert [model_file(path, str(path)).label for path in paths] == shown
    assert level_label(paths[2], "Q4_0") == "a'b Q4_0"
    assert labels(made("x", "/p/x\x01.gguf"), made("x", "/p/x\u2401.gguf")) == ["x #1", "x #2"]
