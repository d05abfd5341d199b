"""Lossless speculative decoding for GGUF models.

`load` a target and a draft, then `complete`, `chat` or `stream`:

    with localspec.load("default") as session:
        print(session.complete("def fib(n):", max_tokens=64).text)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.errors import LocalspecError
    from localspec.options import LoadOptions, Options
    from localspec.session import Completion, Session, load
    from localspec.speculation.events import (
        Alternative,
        Event,
        Finished,
        Prefill,
        Round,
        RoundToken,
        Stats,
    )

__version__ = "0.1.0"

__all__ = [
    "Alternative",
    "Completion",
    "Event",
    "Finished",
    "LoadOptions",
    "LocalspecError",
    "Options",
    "Prefill",
    "Round",
    "RoundToken",
    "Session",
    "Stats",
    "load",
]

# Imported on first use: `localspec --help` must not wait for the engine to load.
_HOMES = {
    "localspec.errors": ("LocalspecError",),
    "localspec.options": ("LoadOptions", "Options"),
    "localspec.session": ("Completion", "Session", "load"),
    "localspec.speculation.events": (
        "Alternative",
        "Event",
        "Finished",
        "Prefill",
        "Round",
        "RoundToken",
        "Stats",
    ),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'localspec' has no attribute {name!r}")
