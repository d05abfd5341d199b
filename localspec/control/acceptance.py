"""How often draft tokens are accepted, learned from how sure the drafter was.

Knows nothing of models: a confidence comes in, a rate comes out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

__all__ = ["AcceptanceCurve"]


class AcceptanceCurve:
    """α as a function of a confidence, learned online; the prior speaks until there is evidence.

    edges: borders of the bins. prior: α before any evidence. strength: how many observations
    the prior is worth. memory: observations after which an old one counts 1/e.
    """

    def __init__(
        self,
        edges: Sequence[float],
        prior: Callable[[float], float],
        *,
        strength: float = 4.0,
        memory: float = 40.0,
    ) -> None:
        self._edges = list(edges)
        self._prior = prior
        self._strength = strength
        self._keep = 1.0 - 1.0 / memory
        self._count = [0.0] * (len(self._edges) + 1)
        self._surplus = [0.0] * (len(self._edges) + 1)  # accepted beyond what the prior expected

    def rate(self, confidence: float) -> float:
        """α in (0, 1)."""
        i = bisect_right(self._edges, confidence)
        prior = self._prior(confidence)
        shift = self._surplus[i] / (self._strength + self._count[i])
        return min(0.999, max(0.001, prior + shift))

    def observe(self, confidence: float, accepted: float) -> None:
        """accepted: 1 or 0, or the probability of acceptance where it is known."""
        i = bisect_right(self._edges, confidence)
        self._count[i] = self._count[i] * self._keep + 1.0
        self._surplus[i] = self._surplus[i] * self._keep + accepted - self._prior(confidence)

    def fade(self, keep: float) -> None:
        """Trust the evidence less, for it grows old."""
        self._count = [count * keep for count in self._count]
        self._surplus = [surplus * keep for surplus in self._surplus]
