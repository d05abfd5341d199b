"""The process that loads one pair and measures it: a job on stdin, rows on stdout.

A process of its own, because then its peak memory is the pair's, and a file that brings down the
native code brings down one pair and not the sweep. stdin stays open as long as the parent lives;
when it closes, this process ends. It ignores Ctrl-C, which is the parent's to handle.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from localspec.bench.machine import power_source
from localspec.bench.measure import Row, Work, measure_pair
from localspec.bench.plan import Setting
from localspec.bench.prompts import BenchPrompt
from localspec.errors import LocalspecError
from localspec.llama.devices import list_devices
from localspec.session.options import LoadOptions, parse
from localspec.session.session import Session

__all__ = ["job_of", "main", "serve", "work_of"]


def job_of(target: Path, draft: Path | None, loading: Mapping[str, Any], work: Work) -> str:
    """The job as one line of JSON."""
    prompts = {p.id: p for p in [*(p for p, _ in work.blocks), *work.predict]}
    job = {
        "target": str(target),
        "draft": str(draft) if draft is not None else None,
        "loading": dict(loading),
        "settings": [[s.name, dict(s.options), s.flags] for s in work.settings],
        "prompts": [[p.id, p.category, p.text, p.is_raw] for p in prompts.values()],
        "blocks": [[prompt.id, repetition] for prompt, repetition in work.blocks],
        "predict": [prompt.id for prompt in work.predict],
        "n_gen": work.n_gen,
        "delay_s": work.delay_s,
        "answering": dict(work.answering),
    }
    return json.dumps(job)  # ASCII alone: a path may hold bytes that are no UTF-8


def work_of(job: Mapping[str, Any]) -> Work:
    """What job_of() was given."""
    prompts = {row[0]: BenchPrompt(*row) for row in job["prompts"]}
    return Work(
        settings=[Setting(*row) for row in job["settings"]],
        blocks=[(prompts[name], repetition) for name, repetition in job["blocks"]],
        predict=[prompts[name] for name in job["predict"]],
        n_gen=job["n_gen"],
        delay_s=job["delay_s"],
        answering=job["answering"],
    )


def main() -> None:
    """Measure the job on stdin."""
    serve(_rows)


def serve(rows_of: Callable[[Mapping[str, Any]], Iterator[Row]]) -> None:
    """Print the rows of the job on stdin. A named error becomes a row of type `failed`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # what native code prints is no row
        try:
            for row in rows_of(job):
                print(json.dumps(row, allow_nan=False), file=out, flush=True)
        except LocalspecError as error:
            print(json.dumps({"type": "failed", "error": str(error)}), file=out, flush=True)


def _rows(job: Mapping[str, Any]) -> Iterator[Row]:
    yield {"type": "doing", "what": "loading"}
    free = _gpu_free_bytes()
    draft = Path(job["draft"]) if job["draft"] is not None else None
    started = perf_counter()
    with Session(Path(job["target"]), draft, parse(LoadOptions, job["loading"])) as session:
        loaded = session.loaded
        facts = {
            "load_s": perf_counter() - started,
            "vram_bytes": max(0, free - _gpu_free_bytes()) if loaded.n_gpu_layers else None,
            "device": session.device,
            "power": power_source(),
            **{name: getattr(loaded, name) for name in loaded.__slots__},
        }
        for row in measure_pair(session, work_of(job)):
            yield {**facts, **row, "type": "pair"} if row["type"] == "costs" else row


def _gpu_free_bytes() -> int:
    return sum(d.free_bytes for d in list_devices() if d.kind in ("gpu", "igpu"))


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
