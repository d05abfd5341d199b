"""The most probable tokens of a row of logits. Pure numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError
from localspec.sampling.raw_law import RawLaw

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
