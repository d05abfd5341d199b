"""Timing a context: the first entries of a cost table, within a budget of seconds.

Decodes arbitrary tokens behind what the cache holds and cuts them off again; a cache too full
for that is cleared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter

from localspec.control.costs import CostTable, Undo
from localspec.llama.context import Context

__all__ = [
    "DRAFT_ALL",
    "DRAFT_SIZES",
    "TARGET_ALL",
    "TARGET_SIZES",
    "measure",
    "measure_undo",
    "renew",
]

TARGET_SIZES = (1, 8, 2, 4, 16, 3, 6, 12)  # the large ones early: nothing is extrapolated
DRAFT_SIZES = (1, 2, 16, 64)
TARGET_ALL = (*range(1, 18), 20, 24, 28, 33)
DRAFT_ALL = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128)
_RENEW_S, _N_RENEW = 0.25, 8
_PROBE = 4  # tokens of the batch that tells whether a stored table still has the right shape
_LARGEST_MISFIT = math.log(1.4)
_N_UNDO = 3
_N_NEEDED = 4  # sizes that are measured whatever it costs


def measure(
    context: Context,
    table: CostTable,
    sizes: Sequence[int],
    *,
    all_rows: bool,
    budget_s: float,
    n_repeat: int = 2,
) -> None:
    """Time decodes of `sizes` tokens, the best of n_repeat, and put them into the table.

    all_rows: rows of logits for every token (a verification) or for the last (a draft). Sizes
    that do not fit the context or the budget are left out; the first few are always timed.
    """
    if len(context.ids) + max(sizes) > context.n_ctx:
        context.clear()
    depth = len(context.ids)
    started = perf_counter()
    _time(context, 1, all_rows=all_rows)  # the first decode touches cold memory
    for i, n in enumerate(sizes):
        if n > min(context.n_batch, context.n_ctx - depth) or (all_rows and n > context.max_rows):
            continue
        if i >= _N_NEEDED and perf_counter() - started > budget_s:
            return
        best = _time(context, n, all_rows=all_rows)
        for _ in range(n_repeat - 1):
            if perf_counter() - started < budget_s / 2:
                best = min(best, _time(context, n, all_rows=all_rows))
        table.set(n, depth, best)


def renew(context: Context, table: CostTable, *, all_rows: bool) -> bool:
    """Fit a stored table to today's speed, by the fastest of some single decodes.

    False when a batch does not fit it: one of the two was timed on a busy machine, and a batch
    that looks too dear would never be used, and so never corrected.
    """
    if len(context.ids) + _PROBE > context.n_ctx:
        context.clear()
    _time(context, 1, all_rows=all_rows)  # the first decode touches cold memory
    depth = len(context.ids)
    started = perf_counter()
    best = _time(context, 1, all_rows=all_rows)
    for _ in range(_N_RENEW):
        if perf_counter() - started < _RENEW_S:
            best = min(best, _time(context, 1, all_rows=all_rows))
    table.rescale(1, depth, best)
    if not all_rows or not table.is_measured(_PROBE, depth) or context.max_rows < _PROBE:
        return True
    fresh = min(_time(context, _PROBE, all_rows=True) for _ in range(2))
    return abs(math.log(fresh / table.seconds(_PROBE, depth))) < _LARGEST_MISFIT


def measure_undo(context: Context) -> Undo | None:
    """What a checkpoint and a return to it cost, the best of a few; None where none are needed."""
    if not context.replays:
        return None
    context.clear()
    saving, restoring = [], []
    for _ in range(_N_UNDO):
        context.clear()  # or the checkpoint would be there already
        context.decode([0], n_rows=0)
        started = perf_counter()
        context.checkpoint()
        saving.append(perf_counter() - started)
        context.decode([0], n_rows=0)
        started = perf_counter()
        context.truncate(1)
        restoring.append(perf_counter() - started)
    context.clear()
    return Undo(min(saving), min(restoring))


def _time(context: Context, n: int, *, all_rows: bool) -> float:
    context.checkpoint()
    depth = len(context.ids)
    ids = [(7919 * (i + 1)) % context.n_vocab for i in range(n)]
    started = perf_counter()
    context.decode(ids, n_rows=n if all_rows else 1)
    elapsed = perf_counter() - started
    if not context.truncate(depth):
        context.clear()
    return elapsed
