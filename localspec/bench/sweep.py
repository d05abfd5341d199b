"""A sweep: every pair of a plan in a process of its own, rows to the disk as they come.

Takes up where an earlier run of the same plan ended. A pair that cannot be measured has rows that
say why, and the next pair is run; those rows are tried again when the sweep is given again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Any

from localspec.bench.configuration import Configuration, failed_configuration, summarise
from localspec.bench.machine import this_machine
from localspec.bench.measure import Work
from localspec.bench.plan import PairPlan, Plan
from localspec.bench.prompts import BenchPrompt
from localspec.bench.rows import (
    VERSION,
    Results,
    change,
    file_rows,
    is_replaced,
    require_rows,
    require_same_files,
)
from localspec.bench.worker import job_of
from localspec.bench.worker_process import worker_rows
from localspec.errors import InvalidOptionError

__all__ = ["Status", "Sweep"]

Row = dict[str, Any]
_WORKER = "localspec.bench.worker"


@dataclass(frozen=True, slots=True)
class Status:
    """Where a sweep stands. kind: `pair` (begun), `doing`, `block`, `done`, `failed`.

    number: of the pair, from 1. n_runs: answers that are on the disk, of n_runs_total. left_s: an
    estimate from the answers made so far, None before the first. rows: what just arrived.
    """

    kind: str
    words: str
    what: str
    number: int
    n_pairs: int
    n_runs: int
    n_runs_total: int
    elapsed_s: float
    left_s: float | None
    configurations: tuple[Configuration, ...] = ()


class Sweep:
    """Runs a plan into an open Results. on_status is called at every step."""

    def __init__(
        self, plan: Plan, results: Results, on_status: Callable[[Status], None] | None = None
    ) -> None:
        self._plan, self._results = plan, results
        self._on_status = on_status or (lambda status: None)
        self._pairs = plan.pairs()
        self._n_total = sum(len(plan.blocks) * len(pair.settings) for pair in self._pairs)
        self._n_done = 0
        self._n_fresh = 0
        self._started = perf_counter()

    def run(self) -> None:
        """Measure what is missing. Raises DiskSpaceError; what was written stays."""
        self._begin()
        for number, pair in enumerate(self._pairs, 1):
            self._measure(number, pair)

    def _begin(self) -> None:
        header = self._header()
        require_rows(self._results.rows)
        earlier = [row for row in self._results.rows if row["type"] == "sweep"]
        if self._results.rows and not earlier:
            raise InvalidOptionError(
                f"{self._results.path} holds rows and not the header of their sweep: how they were "
                "measured is not known. Give another --out"
            )
        if earlier:
            _require_alike(earlier[0], header, self._results.path)
        files = file_rows(self._plan)
        require_same_files(self._results.rows, files)
        whole = self._whole_blocks()
        measured = {_key(row) for row in self._results.rows if row["type"] == "pair"}
        self._results.drop(
            lambda row: (
                (row["type"] == "run" and (*_key(row), *_block(row)) not in whole)
                # of a pair that failed: it is tried again
                or (row["type"] == "configuration" and _key(row) not in measured)
                or (row["type"] == "file" and is_replaced(row, files))
            )
        )
        if not earlier:
            self._results.append([header])
        self._results.append([row for row in files if row not in self._results.rows])
        ours = {pair.key for pair in self._pairs}
        self._n_done = sum(r["type"] == "run" and _key(r) in ours for r in self._results.rows)

    def _whole_blocks(self) -> set[tuple[Any, ...]]:
        """Blocks whose runs are all there; others are measured again, since they are paired."""
        n_settings = {pair.key: len(pair.settings) for pair in self._pairs}
        counts: dict[tuple[Any, ...], int] = {}
        for row in self._results.rows:
            if row["type"] == "run":
                block = (*_key(row), *_block(row))
                counts[block] = counts.get(block, 0) + 1
        return {b for b, n in counts.items() if n == n_settings.get((b[0], b[1]), n)}

    def _measure(self, number: int, pair: PairPlan) -> None:
        mine = [row for row in self._results.rows if _key(row) == pair.key]
        is_measured = any(row["type"] == "pair" for row in mine)
        if not is_measured:
            self._tell("pair", number, pair, "loading, and measuring costs")
            error = self._broken(pair) or self._run_worker(number, pair, mine)
            if error is not None:
                self._fail(number, pair, error)
                return
            mine = [row for row in self._results.rows if _key(row) == pair.key]
        if any(row["type"] == "configuration" for row in mine):
            return
        facts = next(row for row in mine if row["type"] == "pair")
        found = [
            summarise(_head(pair, i), mine, facts, n_gen=self._plan.n_gen)
            for i in range(len(pair.settings))
        ]
        self._results.append([configuration.as_row() for configuration in found])
        self._tell("done", number, pair, "measured", found)

    def _run_worker(self, number: int, pair: PairPlan, mine: Sequence[Row]) -> str | None:
        """None when the pair was measured to its end, else why not."""
        plan = self._plan
        done = {_block(row) for row in mine if row["type"] == "run"}
        predicted = {row["prompt"] for row in mine if row["type"] == "prediction"}
        to_predict: list[BenchPrompt] = [p for p in plan.prompts if p.id not in predicted]
        work = Work(
            settings=pair.settings,
            blocks=[(p, i) for p, i in plan.blocks if (p.id, i) not in done],
            predict=to_predict,
            n_gen=plan.n_gen,
            delay_s=plan.delay_s,
            answering=plan.answering,
        )
        draft = pair.draft.path if pair.draft else None
        key = dict(zip(("target", "draft"), pair.key, strict=True))
        job = job_of(pair.target.path, draft, plan.loading, work)
        with contextlib.closing(worker_rows(_WORKER, job)) as rows:
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

    def _broken(self, pair: PairPlan) -> str | None:
        rows = self._results.rows
        errors = (
            *(pair.target.error, pair.draft.error if pair.draft else None),
            *(change(rows, "target", pair.target), change(rows, "draft", pair.draft)),
        )
        return next((error for error in errors if error is not None), None)

    def _fail(self, number: int, pair: PairPlan, error: str) -> None:
        found = [failed_configuration(_head(pair, i), error) for i in range(len(pair.settings))]
        self._results.append([configuration.as_row() for configuration in found])
        n_made = sum(r["type"] == "run" and _key(r) == pair.key for r in self._results.rows)
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
        self._on_status(
            Status(kind, pair.words, what, number, len(self._pairs), self._n_done, self._n_total,
                   elapsed, left, tuple(found))
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
            "machine": this_machine().as_row(),
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
            "options to go on with it, or another --out"
        )


def _head(pair: PairPlan, i: int) -> dict[str, Any]:
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


def _key(row: Row) -> tuple[str | None, str | None]:
    return row.get("target"), row.get("draft")


def _block(row: Row) -> tuple[str, int]:
    return row["prompt"], row["repetition"]
