"""Which target the others are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.bench import quality_sweep
from localspec.bench.plan import ModelFile, level_label
from localspec.bench.quality_sweep import reference_of


def made(label: str, quant: str, size: int, **more: object) -> ModelFile:
    return ModelFile(label, Path(f"{label}.gguf"), label, quant, size, 100, **more)  # type: ignore[arg-type]


def test_an_unquantised_file_is_the_reference_though_another_is_larger() -> None:
    group = [made("q8", "Q8_0", 300), made("f16", "F16", 200), made("q4", "Q4_0", 50)]
    assert reference_of(group).label == "f16"


def test_without_one_it_is_the_largest() -> None:
    assert reference_of([made("q4", "Q4_0", 50), made("q8", "Q8_0", 90)]).label == "q8"


def test_a_level_of_a_lossy_source_never_is(monkeypatch: pytest.MonkeyPatch) -> None:
    source = made("source-q4_k_m", "Q4_K_M", 60)
    monkeypatch.setattr(quality_sweep, "model_file", lambda path, reference: source)
    level = made("source Q8_0", "Q8_0", 90, from_lossy=True, source=source.path)
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
