"""The most probable tokens of a row of logits. Pure numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError

__all__ = ["TOP", "Top"]

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
        top = float(row.max())
        if not math.isfinite(top):
            raise EngineError(f"the model returned {top} as its best logit: the file is damaged")
        total = float(np.exp(row - np.float32(top)).sum(dtype=np.float64))
        n = min(n, len(row))
        found = np.argpartition(row, len(row) - n)[-n:]
        found = found[np.argsort(-row[found], kind="stable")]
        probs = np.exp(row[found].astype(np.float64) - top) / total
        return cls(tuple(found.tolist()), tuple(probs.tolist()), max(0.0, 1.0 - float(probs.sum())))

    def prob(self, token: int) -> float:
        """Probability of a token; 0.0 when it is not among the kept ones."""
        return self.probs[self.ids.index(token)] if token in self.ids else 0.0
