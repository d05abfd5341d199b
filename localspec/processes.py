"""Processes of this package beside the one that runs: how they are started, how they end.

Always a fresh interpreter (never fork or multiprocessing), so that it works from a notebook, a
`python -c`, a test runner and on Windows. Knows nothing of what they do.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import localspec

__all__ = ["death", "environment", "module_command"]


def module_command(module: str) -> list[str] | None:
    """The command that runs a module of this package; None where there is no interpreter to run.

    That is so in a frozen application and in some embedded ones, whose executable is no Python.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    return [sys.executable, "-m", module]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The same package as here, and no module of the current folder in the way of Python's own."""
    root = str(Path(localspec.__file__).parents[1])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    return {**os.environ, **own, **(more or {})}


def death(code: int) -> str:
    """How a process with this return code ended, such as `was killed by SIGABRT`."""
    if code >= 0:
        # Windows reports what killed a process as a large code: 0xC0000005 is a bad address.
        return f"ended with code {code}" if code < 1 << 16 else f"ended with code 0x{code:08X}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    words = f"was killed by {name}"
    if name == "SIGKILL":
        words += " (the system does that when memory runs out)"
    return words
