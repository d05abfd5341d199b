"""A mean over scored tokens and how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """error: one standard error, tokens taken as independent."""

    value: float
    error: float

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Estimate:
        """The mean of at least two values, shape (n,); its error is σ / sqrt(n − 1), σ over n."""
        array = np.asarray(values, np.float64)
        return cls(float(array.mean()), float(array.std() / math.sqrt(len(array) - 1)))

    @classmethod
    def perplexity(cls, nll: npt.ArrayLike) -> Estimate:
        """exp of the mean negative log-likelihood (nats); the error by exp's slope."""
        mean = cls.of(nll)
        value = math.exp(min(mean.value, 700.0))  # a float holds no more
        return cls(value, value * mean.error)
