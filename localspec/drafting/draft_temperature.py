"""The temperature at which drafts are drawn, tuned from history.

A drafted token is accepted with probability Σ min(p, q) at best. After each round p and q are
both known, so every temperature on a small grid can be scored, the one-hot draft included, and
the best is used next. Chosen from the past alone, it leaves the law unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localspec.sampling.distribution import Distribution, overlap

__all__ = ["DraftTemperature"]

ONE_HOT = 0.0
GRID = (ONE_HOT, 0.4, 0.6, 0.8, 1.0, 1.3)  # as shares of the answer's temperature
_STEP = 0.05


class DraftTemperature:
    """Scores Σ min(p, q_τ) for each τ of the grid; `share` is the best so far.

    Temperature is the last transform of the chain, so that q_τ is q to the power 1/share,
    normalised, over the same ids.
    """

    def __init__(self) -> None:
        self.share = 1.0
        self._score = dict.fromkeys(GRID, 0.0)
        self._weight = 0.0
        self._untempered: list[Distribution] = []

    @property
    def is_one_hot(self) -> bool:
        """True when the most probable token alone is drafted."""
        return self.share == ONE_HOT

    def begin(self) -> None:
        """Forget the q of the last round."""
        self._untempered.clear()

    def apply(self, q: Distribution) -> Distribution:
        """q at the temperature in use; q itself is kept to score the others."""
        self._untempered.append(q)
        return _tempered(q, self.share)

    def observe(self, p: Sequence[Distribution]) -> None:
        """p[i]: the target's law at the i-th position drafted, up to the rejected one."""
        for law, q in zip(p, self._untempered, strict=False):
            self._weight = self._weight * (1.0 - _STEP) + _STEP
            for share in GRID:
                found = overlap(law, _tempered(q, share))
                self._score[share] += _STEP * (found - self._score[share])
        if self._untempered:
            self.share = max(GRID, key=lambda share: (self._score[share], share == self.share))

    def yields(self) -> dict[float, float]:
        """Mean Σ min(p, q_τ) by share of the answer's temperature; empty before any round."""
        if not self._weight:
            return {}
        return {share: score / self._weight for share, score in self._score.items()}


def _tempered(q: Distribution, share: float) -> Distribution:
    if share == 1.0 or len(q.ids) == 1:
        return q
    if share == ONE_HOT:
        return Distribution.one_hot(int(q.ids[int(q.probs.argmax())]))
    weights = (q.probs / q.probs.max()) ** (1.0 / share)
    return Distribution(q.ids, np.asarray(weights / weights.sum()))
