"""Which tokens may come next, and the best of them without asking about all. Pure numpy."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Mask", "best_allowed"]

Ids = npt.NDArray[np.int32]

_FIRST_LOOK = 64  # candidates asked about before all are: nearly always one of them is allowed


class Mask(Protocol):
    """The tokens that a constraint allows at one position."""

    def allows(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """For each of `ids`, int32, shape (n,), whether it may come next."""

    def allowed(self) -> Ids:
        """Every id that may come next, int32, ascending."""


def best_allowed(logits: npt.NDArray[np.float32], mask: Mask, n: int) -> Ids:
    """The n allowed ids with the largest logits, in no order; all of them when there are fewer.

    logits: float32, shape (n_vocab,). The same ids as the n best of a row in which everything
    else is -inf: the best of the whole row are asked about first, and when n of those are
    allowed, no other allowed id can be better.
    """
    n_look = max(_FIRST_LOOK, 4 * n)
    if n_look < len(logits):
        some = np.argpartition(logits, len(logits) - n_look)[-n_look:].astype(np.int32)
        some = some[mask.allows(some)]
        if len(some) >= n:
            return _best(logits, some, n)
    return _best(logits, within(mask, len(logits)), n)


def within(mask: Mask, n_vocab: int) -> Ids:
    """All allowed ids below n_vocab."""
    ids = mask.allowed()
    return ids[: int(np.searchsorted(ids, n_vocab))]


def _best(logits: npt.NDArray[np.float32], ids: Ids, n: int) -> Ids:
    if len(ids) <= n:
        return ids
    return ids[np.argpartition(logits[ids], len(ids) - n)[-n:]]
