"""Model files that change while a sweep runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.bench import quality_sweep as quality_sweep_module
from localspec.bench import sweep as sweep_module
from localspec.bench.plan import Plan, model_file
from localspec.bench.prompts import BenchPrompt
from localspec.bench.quality_sweep import QualitySweep
from localspec.bench.results_file import ResultsFile
from localspec.bench.sweep import Sweep


def test_a_file_replaced_in_mid_sweep_is_not_measured_under_its_name(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    target.write_bytes(tiny_target.read_bytes())
    draft.write_bytes(tiny_draft.read_bytes())
    plan = Plan(
        targets=(model_file(target, "t"),),
        drafts=(model_file(draft, "d"),),
        prompts=(BenchPrompt("a", "text", "the"),),
    )
    ran = []

    def worker(module: str, job: str) -> Iterator[dict[str, Any]]:
        ran.append(job)
        draft.write_bytes(tiny_target.read_bytes())
        yield {"type": "failed", "error": "no matter"}

    monkeypatch.setattr(sweep_module, "worker_rows", worker)
    monkeypatch.setattr(quality_sweep_module, "worker_rows", worker)
    said: list[str] = []
    with ResultsFile(tmp_path / "out") as results:
        Sweep(plan, results).run()
        errors = {row["draft"]: row["error"] for row in results.rows if "error" in row}
        target.unlink()
        QualitySweep(plan, results, said.append, said.append).run()
    assert len(ran) == 1
    assert errors["none"] == "no matter"
    assert "draft has changed since this sweep began" in errors["draft"]
    assert ["cannot be read" in words for words in said] == [True]
