"""A sweep: every pair of a plan in a process of its own, rows to the disk as they come.

Takes up where an earlier run of the same plan ended. A pair that cannot be measured has rows that
say why, and the next pair is run; those rows are tried again when the sweep is given again.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Any

from localspec.bench.configuration import Configuration, summarise
from localspec.bench.machine import machine_row
from localspec.bench.measure import PairWork, measure_pair
from localspec.bench.model_files import changed_since, file_row, is_replaced
from localspec.bench.plan import PairPlan, Plan
from localspec.bench.results_file import VERSION, ResultsFile, require_rows
from localspec.bench.worker import rows_from_process
from localspec.errors import InvalidOptionError
from localspec.jsonl_file import Row

__all__ = ["Sweep", "SweepProgress"]


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """Where a sweep stands. kind: `pair` (begun), `doing`, `block`, `done`, `failed`.

    number: of the pair, from 1. n_runs: answers that are on the disk, of n_runs_total. left_s: an
    estimate from the answers made so far, None before the first. configurations: of a pair that
    has just ended.
    """

    kind: str
    pair: str
    what: str
    number: int
    n_pairs: int
    n_runs: int
    n_runs_total: int
    elapsed_s: float
    left_s: float | None
    configurations: tuple[Configuration, ...] = ()


class Sweep:
    """Runs a plan into an open ResultsFile. on_progress is called at every step."""

    def __init__(
        self,
        plan: Plan,
        results: ResultsFile,
        on_progress: Callable[[SweepProgress], None] = lambda progress: None,
    ) -> None:
        self._plan, self._results, self._on_progress = plan, results, on_progress
        self._pairs = plan.pairs()
        self._n_total = plan.n_runs
        self._n_done = 0
        self._n_fresh = 0
        self._started = perf_counter()

    def run(self) -> None:
        """Measure what is missing. Raises DiskSpaceError; what was written stays."""
        self._begin()
        for number, pair in enumerate(self._pairs, 1):
            self._measure(number, pair)

    def _begin(self) -> None:
        """Refuse the rows of another sweep, and drop those that are measured again."""
        header, results = self._header(), self._results
        require_rows(results.rows)
        earlier = results.of_type("sweep")
        if results.rows and not earlier:
            raise InvalidOptionError(
                f"{results.path} holds rows without the header of their sweep, so how they were "
                "measured is not known. Give another --out"
            )
        if earlier:
            _require_alike(earlier[0], header, results.path)
        files = self._file_rows()
        _require_same_files(results, files)
        whole = self._whole_blocks()
        whole_pairs = self._whole_pairs()
        results.drop(
            lambda row: (
                (row["type"] == "run" and _block(row) not in whole)
                # of a pair that failed, or of which a kill left a part: made again
                or (row["type"] == "configuration" and _key(row) not in whole_pairs)
                or (row["type"] == "file" and is_replaced(row, files))
            )
        )
        if not earlier:
            results.append([header])
        results.append([row for row in files if row not in results.rows])
        ours = {pair.key for pair in self._pairs}
        self._n_done = sum(_key(run) in ours for run in results.of_type("run"))

    def _file_rows(self) -> list[Row]:
        """Files that cannot be read have none: the rows of their pairs say so."""
        files = [("target", file) for file in self._plan.targets]
        files += [("draft", file) for file in self._plan.drafts]
        return [file_row(role, file) for role, file in files if file.error is None]

    def _whole_blocks(self) -> set[tuple[Any, ...]]:
        """Blocks whose runs are all there; others are measured again, since they are paired."""
        n_settings = {pair.key: len(pair.settings) for pair in self._pairs}
        counts = Counter(_block(run) for run in self._results.of_type("run"))
        return {block for block, n in counts.items() if n == n_settings.get(block[:2], n)}

    def _whole_pairs(self) -> set[tuple[Any, Any]]:
        """Pairs that were measured to their end and have all their configurations."""
        n_settings = {pair.key: len(pair.settings) for pair in self._pairs}
        counts = Counter(_key(row) for row in self._results.of_type("configuration"))
        measured = {_key(row) for row in self._results.of_type("pair")}
        return {key for key in measured if counts[key] == n_settings.get(key, counts[key])}

    def _measure(self, number: int, pair: PairPlan) -> None:
        rows = self._rows_of(pair)
        if not any(row["type"] == "pair" for row in rows):
            self._tell("pair", number, pair, "loading, and measuring costs")
            error = self._unusable(pair) or self._run_worker(number, pair, rows)
            if error is not None:
                self._fail(number, pair, error)
                return
            rows = self._rows_of(pair)
        if any(row["type"] == "configuration" for row in rows):
            return
        facts = next(row for row in rows if row["type"] == "pair")
        found = [
            summarise(_unmeasured(pair, i), rows, facts, n_gen=self._plan.n_gen)
            for i in range(len(pair.settings))
        ]
        self._results.append([configuration.as_row() for configuration in found])
        self._tell("done", number, pair, "measured", found)

    def _rows_of(self, pair: PairPlan) -> list[Row]:
        return [row for row in self._results.rows if _key(row) == pair.key]

    def _unusable(self, pair: PairPlan) -> str | None:
        """Why a file of the pair cannot be measured, None where both can."""
        rows, target, draft = self._results.rows, pair.target, pair.draft
        return (
            target.error
            or (draft.error if draft else None)
            or changed_since(rows, "target", target)
            or changed_since(rows, "draft", draft)
        )

    def _run_worker(self, number: int, pair: PairPlan, earlier: Sequence[Row]) -> str | None:
        """None when the pair was measured to its end, else why not."""
        plan = self._plan
        done = {(r["prompt"], r["repetition"]) for r in earlier if r["type"] == "run"}
        predicted = {row["prompt"] for row in earlier if row["type"] == "prediction"}
        work = PairWork(
            target=pair.target.path,
            draft=pair.draft.path if pair.draft else None,
            loading=plan.loading,
            settings=pair.settings,
            blocks=[(p, i) for p, i in plan.blocks if (p.id, i) not in done],
            predict=[p for p in plan.prompts if p.id not in predicted],
            n_gen=plan.n_gen,
            delay_s=plan.delay_s,
            answering=plan.answering,
        )
        key = dict(zip(("target", "draft"), pair.key, strict=True))
        with contextlib.closing(rows_from_process(measure_pair, work)) as rows:
            for row in rows:
                if row["type"] == "doing":
                    self._tell("doing", number, pair, row["what"])
                elif row["type"] == "failed":
                    return str(row["error"])
                elif row["type"] == "block":
                    runs = [{"type": "run", **key, **run} for run in row["rows"]]
                    self._results.append(runs)
                    self._n_done += len(runs)
                    self._n_fresh += len(runs)
                    self._tell("block", number, pair, runs[0]["prompt"])
                else:
                    self._results.append([{"type": row["type"], **key, **row}])
                    if row["type"] == "pair":
                        return None
        return "the process that ran this pair ended early"

    def _fail(self, number: int, pair: PairPlan, error: str) -> None:
        found = [Configuration(**_unmeasured(pair, i), error=error)
                 for i in range(len(pair.settings))]  # fmt: skip
        self._results.append([configuration.as_row() for configuration in found])
        n_made = sum(row["type"] == "run" for row in self._rows_of(pair))
        self._n_total -= len(self._plan.blocks) * len(pair.settings) - n_made
        self._tell("failed", number, pair, error, found)

    def _tell(
        self,
        kind: str,
        number: int,
        pair: PairPlan,
        what: str,
        found: Sequence[Configuration] = (),
    ) -> None:
        elapsed = perf_counter() - self._started
        n_left = max(0, self._n_total - self._n_done)
        left = elapsed / self._n_fresh * n_left if self._n_fresh else None
        self._on_progress(
            SweepProgress(kind, pair.words, what, number, len(self._pairs), self._n_done,
                          self._n_total, elapsed, left, tuple(found))
        )  # fmt: skip

    def _header(self) -> Row:
        plan = self._plan
        return {
            "type": "sweep",
            "version": VERSION,
            "test_time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "workload": plan.workload,
            "prompts_name": plan.prompts_name,
            "prompts": [[prompt.id, prompt.category] for prompt in plan.prompts],
            "repeat": plan.repeat,
            "n_drafts": list(plan.n_drafts),
            "delay_s": plan.delay_s,
            "loading": dict(plan.loading),
            "machine": machine_row(),
        }


def _require_alike(earlier: Row, now: Row, path: Path) -> None:
    """One file holds one sweep: what was measured otherwise does not belong beside it."""
    for name in ("version", "workload", "repeat", "n_drafts", "delay_s", "loading", "machine"):
        then, here = earlier.get(name), now[name]
        if then == here:
            continue
        if isinstance(then, dict) and isinstance(here, dict):  # name what differs in it alone
            keys = [key for key in {**then, **here} if then.get(key) != here.get(key)]
            then, here = ({key: found.get(key) for key in keys} for found in (then, here))
        raise InvalidOptionError(
            f"{path} holds another sweep: its {name} has {then}, here it is {here}. Give the same "
            "options to continue it, or another --out"
        )


def _require_same_files(results: ResultsFile, files: Sequence[Row]) -> None:
    """Raises InvalidOptionError where answers of another file stand under a label."""
    answered = [run for run in results.of_type("run") if run.get("error") is None]
    for row in results.of_type("file"):
        if is_replaced(row, files) and any(
            run.get(row["role"]) == row["label"] for run in answered
        ):
            raise InvalidOptionError(
                f"{row['label']} has changed since it was measured: another file has its name now. "
                "Give another --out"
            )


def _unmeasured(pair: PairPlan, i: int) -> dict[str, Any]:
    """The fields of a configuration that need no measurement: of the pair's setting i."""
    target, draft, setting = pair.target, pair.draft, pair.settings[i]
    return {
        "target": target.label,
        "draft": pair.key[1],
        "setting": setting.name,
        "flags": setting.flags,
        "target_reference": target.reference,
        "draft_reference": draft.reference if draft else None,
        "model_filename": str(target.path),
        "draft_filename": str(draft.path) if draft else None,
        "target_quant": target.quant,
        "draft_quant": draft.quant if draft else None,
        "model_size": target.size_bytes,
        "target_from_lossy": target.from_lossy,
        "draft_from_lossy": bool(draft and draft.from_lossy),
    }


def _key(row: Row) -> tuple[Any, Any]:
    return row.get("target"), row.get("draft")


def _block(run: Row) -> tuple[Any, ...]:
    return *_key(run), run["prompt"], run["repetition"]
