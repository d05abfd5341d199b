"""A probability distribution over a few token ids, and what verification does to it.

Pure numpy. Knows nothing of logits, models or text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Distribution", "overlap", "residual", "residual_mass"]


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Probabilities of the ids that can be drawn; every other id has probability 0.

    ids: int32, shape (n,), strictly ascending, n >= 1.
    probs: float64, shape (n,), non-negative, sum 1.
    """

    ids: npt.NDArray[np.int32]
    probs: npt.NDArray[np.float64]

    @classmethod
    def one_hot(cls, token: int) -> Distribution:
        """The law of a deterministic choice."""
        return cls(np.array([token], np.int32), np.ones(1))

    @classmethod
    def from_weights(
        cls, ids: npt.NDArray[np.int32], weights: npt.NDArray[np.float64]
    ) -> Distribution:
        """Sort by id and normalise. The weights have a positive, finite sum."""
        order = np.argsort(ids, kind="stable")
        weights = weights[order]
        return cls(ids[order], weights / weights.sum())

    def prob(self, token: int) -> float:
        """Probability of `token`, 0.0 when it is not among the ids."""
        i = int(np.searchsorted(self.ids, token))
        if i < len(self.ids) and self.ids[i] == token:
            return float(self.probs[i])
        return 0.0

    def sample(self, u: float) -> int:
        """The token at quantile u in [0, 1) of the cumulative sum in id order."""
        if len(self.ids) == 1:
            return int(self.ids[0])
        cumulative = np.cumsum(self.probs)
        i = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
        if i >= len(self.ids):  # u * total rounded up to the total itself
            i = int(np.flatnonzero(self.probs)[-1])
        return int(self.ids[i])


def residual(p: Distribution, q: Distribution, scale: float = 1.0) -> Distribution | None:
    """norm(max(0, scale·p − q)), or None when nothing is left to normalise.

    With scale 1 it is the law of the correction in Leviathan et al. 2023; with scale π_i
    it is R_i of Sun et al. 2024.
    """
    mass = residual_mass(p, q, scale)
    total = mass.sum()
    if total <= 0.0:
        return None
    return Distribution(p.ids, mass / total)


def residual_mass(p: Distribution, q: Distribution, scale: float) -> npt.NDArray[np.float64]:
    """max(0, scale·p − q) on the ids of p; elsewhere it is 0."""
    at = np.minimum(np.searchsorted(q.ids, p.ids), len(q.ids) - 1)
    q_on_p = np.where(q.ids[at] == p.ids, q.probs[at], 0.0)
    mass: npt.NDArray[np.float64] = np.maximum(0.0, scale * p.probs - q_on_p)
    return mass


def overlap(p: Distribution, q: Distribution) -> float:
    """Σ min(p, q): how often a token drawn from q is accepted by rejection sampling."""
    return max(0.0, 1.0 - float(residual_mass(p, q, 1.0).sum()))
