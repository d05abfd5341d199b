"""What a row of logits says by itself: its softmax at temperature 1, worked out once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError

__all__ = ["TOP", "RawLaw", "Top"]

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


TOP = 64


@dataclass(frozen=True, slots=True)
class Top:
    """The most probable tokens of one row, softmax of the unprocessed logits at temperature 1.

    ids: int, most probable first. probs: theirs. rest: the mass of all others.
    """

    ids: tuple[int, ...]
    probs: tuple[float, ...]
    rest: float

    @classmethod
    def of(cls, row: npt.NDArray[np.float32], n: int = TOP) -> Top:
        """The n best of logits, float32, shape (n_vocab,). Raises EngineError for NaN and inf."""
        return cls.of_law(RawLaw(row), n)

    @classmethod
    def of_law(cls, law: RawLaw, n: int = TOP) -> Top:
        """The same of a row whose softmax is known. Raises EngineError for NaN and inf."""
        if not math.isfinite(law.max):
            raise EngineError(
                f"the model returned {law.max} as its best logit: the file is damaged"
            )
        ids = tuple(law.best(n).tolist())
        probs = tuple(law.prob(token) for token in ids)
        return cls(ids, probs, max(0.0, 1.0 - math.fsum(probs)))

    def prob(self, token: int) -> float:
        """Probability of a token; 0.0 when it is not among the kept ones."""
        return self.probs[self.ids.index(token)] if token in self.ids else 0.0
