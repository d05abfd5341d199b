"""Labels, one for each file, and which file of a size is the reference of the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.bench import quality_sweep
from localspec.bench.model_files import ModelFile, level_label, model_file, unique_labels
from localspec.bench.quality_sweep import reference_of


def made(label: str, path: str, source: str | None = None) -> ModelFile:
    return ModelFile(label, Path(path), path, source=Path(source) if source else None)


def labels(*given: ModelFile) -> list[str]:
    return [found.label for found in unique_labels(given)]


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


def sized(label: str, quant: str, size: int, **more: object) -> ModelFile:
    return ModelFile(label, Path(f"{label}.gguf"), label, quant, size, 100, **more)  # type: ignore[arg-type]


def test_an_unquantised_file_is_the_reference_though_another_is_larger() -> None:
    group = [sized("q8", "Q8_0", 300), sized("f16", "F16", 200), sized("q4", "Q4_0", 50)]
    assert reference_of(group).label == "f16"


def test_without_one_it_is_the_largest() -> None:
    assert reference_of([sized("q4", "Q4_0", 50), sized("q8", "Q8_0", 90)]).label == "q8"


def test_a_level_of_a_lossy_source_never_is(monkeypatch: pytest.MonkeyPatch) -> None:
    source = sized("source-q4_k_m", "Q4_K_M", 60)
    monkeypatch.setattr(quality_sweep, "model_file", lambda path, reference: source)
    level = sized("source Q8_0", "Q8_0", 90, from_lossy=True, source=source.path)
    assert reference_of([level]) == source
    assert reference_of([level, source]) == source


@pytest.mark.parametrize(
    ("stem", "label"),
    [
        ("qwen2.5-coder-1.5b-instruct-q4_k_m", "qwen2.5-coder-1.5b-instruct Q8_0"),
        ("Llama-3.2-3B.F16", "Llama-3.2-3B Q8_0"),
        ("model", "model Q8_0"),
    ],
)
def test_a_level_is_called_by_its_own_quant(stem: str, label: str) -> None:
    assert level_label(Path(f"{stem}.gguf"), "Q8_0") == label
