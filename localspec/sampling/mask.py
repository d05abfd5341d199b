"""The best tokens of those that a grammar allows. Pure numpy."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Mask", "best_allowed", "within"]

Ids = npt.NDArray[np.int32]
Mask: TypeAlias = "npt.NDArray[np.bool_]"  # shape (n_vocab,): True for each token that is allowed

_FIRST_LOOK = 64  # candidates looked at before all are: nearly always one of them is allowed
_SPARSE = 0.05  # below this share it is faster to gather the allowed ones


def best_allowed(logits: npt.NDArray[np.float32], mask: Mask, n: int) -> Ids:
    """The n allowed ids with the largest logits, in no order; all of them when there are fewer.

    logits: float32, shape (n_vocab,). The same ids as the n best of a row in which everything
    else is -inf: when n of the best of the whole row are allowed, no other allowed id is better.
    """
    best = int(logits.argmax())
    if n == 1 and best < len(mask) and mask[best]:
        return np.array([best], np.int32)
    n_look = max(_FIRST_LOOK, 4 * n)
    is_dense = np.count_nonzero(mask) > _SPARSE * len(mask)
    if is_dense and n_look < len(logits) <= len(mask):
        some = np.argpartition(logits, len(logits) - n_look)[-n_look:].astype(np.int32)
        some = some[mask[some]]
        if len(some) >= n:
            return _best(logits, some, n)
    return _best(logits, within(mask, len(logits)), n)


def within(mask: Mask, n_vocab: int) -> Ids:
    """All allowed ids below n_vocab, ascending."""
    return np.flatnonzero(mask[:n_vocab]).astype(np.int32)


def _best(logits: npt.NDArray[np.float32], ids: Ids, n: int) -> Ids:
    if len(ids) <= n:
        return ids
    return ids[np.argpartition(logits[ids], len(ids) - n)[-n:]]
