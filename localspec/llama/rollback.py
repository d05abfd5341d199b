"""Whether rejected tokens can be taken back from a context's memory: found by test, not by name."""

from __future__ import annotations

import numpy as np

from localspec.errors import EngineError
from localspec.llama.context import Context

__all__ = ["rollback_refused"]

_TOLERANCE = 1e-3  # of the range of the logits; the same decode twice gives the same bits on a CPU


def rollback_refused(context: Context) -> str | None:
    """Why this memory cannot take tokens back, None when it can. Clears the context.

    A memory that can be cut is believed. One that must go back to a checkpoint is tried out, with
    four decodes: another token is read and taken back, and the next logits must not show it.
    Raises what Context.decode raises.
    """
    if not context.replays:
        return None
    first, second, third = (1 + i % (context.n_vocab - 1) for i in range(3))
    context.clear()
    try:
        context.decode([first, second], n_rows=0)
        if not context.checkpoint():
            return "its memory is recurrent, and llama.cpp cannot save its state"
        clean = context.decode([third], n_rows=1)[0].copy()
        context.decode([first], n_rows=0)
        if not context.truncate(2):
            return "its memory is recurrent, and llama.cpp cannot restore its state"
        again = context.decode([third], n_rows=1)[0]
        if not np.abs(again - clean).max() <= _TOLERANCE * max(1.0, float(np.ptp(clean))):
            return "its memory is recurrent, and a restored state gave other logits"
    except EngineError as error:
        return f"its memory is recurrent, and a restored state could not be used: {error}"
    finally:
        context.clear()
    return None
