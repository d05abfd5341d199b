"""Tests in several processes at once (pytest -n auto): one worker for each core, and pinned to it.

ggml's threads wait for each other by spinning, so that two processes on the same cores are many
times slower than one. A pinned worker, and every program that it starts, sees a single core.
"""

from __future__ import annotations

import os

from localspec.llama import devices

__all__ = ["count", "pin"]

_MOST = 8  # each of them may load the default pair


def count() -> int:
    """Workers to start; 0, one test after another, where a process cannot be pinned."""
    cores = min(devices.physical_cores(), _MOST)
    return cores if cores > 1 and hasattr(os, "sched_setaffinity") else 0


def pin(worker: int) -> None:
    """Keep this process on the core of the worker with this number."""
    cpus = {devices._core_of(cpu): cpu for cpu in sorted(os.sched_getaffinity(0), reverse=True)}
    of_cores = sorted(cpus.values())
    os.sched_setaffinity(0, {of_cores[worker % len(of_cores)]})
