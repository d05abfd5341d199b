"""What a row of logits says by itself: its softmax at temperature 1, worked out once."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt

__all__ = ["RawLaw"]

_WIDTH = 64


class RawLaw:
    """row: unprocessed logits, float32, shape (n_vocab,), not copied: read it before the next
    decode. Natural logarithms."""

    def __init__(self, row: npt.NDArray[np.float32]) -> None:
        self._row = row
        self.max = float(row.max())

    @cached_property
    def _log_total(self) -> float:
        with np.errstate(over="ignore", invalid="ignore"):  # -inf, and a weight of 0
            weights = np.exp(self._row - np.float32(self.max))
        return self.max + math.log(float(weights.sum(dtype=np.float64)))

    def logprob(self, token: int) -> float:
        """Of one token; -inf when its logit is."""
        return float(self._row[token]) - self._log_total

    def prob(self, token: int) -> float:
        """Of one token."""
        return math.exp(self.logprob(token))

    def best(self, n: int) -> npt.NDArray[np.intp]:
        """The n most probable tokens, best first; of equals the lower id.

        The n-th greatest maximum of some sixty neighbours each is no more than the n-th greatest
        value, so that only a few tokens are left to be sorted.
        """
        row = self._row
        n = min(n, len(row))
        n_blocks = len(row) // _WIDTH
        if n == 0 or n_blocks <= n:
            found = np.arange(len(row))
        else:
            maxima = row[: n_blocks * _WIDTH].reshape(n_blocks, _WIDTH).max(axis=1)
            least = np.partition(maxima, n_blocks - n)[n_blocks - n]
            found = np.flatnonzero(row >= least)
        return found[np.lexsort((found, -row[found]))][:n]
