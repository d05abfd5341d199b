"""Which batch sizes give the very bits that single-token decoding gives.

Logits may differ across batch shapes, since kernels sum in another order; then greedy text can
flip at near ties. Whether they do is found by test, for this file on this machine, at several
depths: below 257 cached tokens CPU attention behaves as it does nowhere else, so that a probe
there proves nothing for longer texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from localspec.llama.context import Context

__all__ = ["DEPTHS", "SIZES", "exact_sizes"]

DEPTHS = (100, 300, 1000, 2100)
SIZES = tuple(range(2, 18))

Row: TypeAlias = npt.NDArray[np.float32]


def exact_sizes(
    context: Context,
    *,
    sizes: Sequence[int] = SIZES,
    depths: Sequence[int] = DEPTHS,
    on_depth: Callable[[int], None] | None = None,
) -> list[int]:
    """The sizes n of which all n rows equal the rows of n single decodes, at every depth.

    Depths that the context cannot hold are left out. None where a refusal means reading tokens
    again in another batch (Context.replays). Clears the cache before and after.
    """
    if context.replays:
        return []
    left = [n for n in sizes if n <= min(context.max_rows, context.n_batch)]
    context.clear()
    for depth in depths:
        if not left or depth + max(left) > context.n_ctx:
            break
        if on_depth is not None:
            on_depth(depth)
        filler = [_token(context, i) for i in range(len(context.ids), depth)]
        context.decode(filler, n_rows=0)
        probe = [_token(context, depth + i) for i in range(max(left))]
        single = [context.decode([token], n_rows=1)[0].copy() for token in probe]
        left = [n for n in left if _same(context, depth, probe[:n], single)]
        context.truncate(depth)
    context.clear()
    return left


def _same(context: Context, depth: int, probe: Sequence[int], single: Sequence[Row]) -> bool:
    context.truncate(depth)
    rows = context.decode(probe, n_rows=len(probe))
    return all(np.array_equal(row, one) for row, one in zip(rows, single, strict=False))


def _token(context: Context, i: int) -> int:
    return (7919 * (i + 1)) % context.n_vocab
