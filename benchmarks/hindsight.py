"""The best rule that sees only the past: a bound for any controller, found in hindsight.

What the answer taught is taken as known from the start: α by the draft's confidence, how
confidences follow one another, and the best ratio ρ. A dynamic programme then says for every
state of a draft whether to go on. Only the clairvoyant oracle can do better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from localspec.bench.replay import Outcome, replay, replay_fixed
from localspec.bench.trace import Recording
from localspec.control.costs import Costs
from localspec.decoding.controller import Source
from localspec.decoding.events import Round

__all__ = ["Hindsight", "optimal"]

EDGES = (0.3, 0.45, 0.6, 0.75, 0.85, 0.92, 0.97, 0.99, 0.998)
N_DRAFT_MAX = 16
_CHANCES = np.exp(-np.arange(0.0, 4.01, 0.1))  # grid of Π α
_N_ITERATIONS = 4

Array = npt.NDArray[np.float64]


class Hindsight:
    """α and the succession of confidences, counted over recordings."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        n = len(EDGES) + 1
        centres = np.array([0.15, *[(a + b) / 2 for a, b in _pairs((*EDGES, 1.0))]])
        right, seen = 2.0 * centres, np.full(n, 2.0)
        follows, first = np.full((n, n), 0.2), np.full(n, 0.2)
        for recording in recordings:
            bins = [_bin(recording.confidence(i)) for i in range(len(recording.tokens))]
            for i, b in enumerate(bins):
                seen[b] += 1
                right[b] += recording.chance(i)
                first[b] += 1
                if i + 1 < len(bins):
                    follows[b, bins[i + 1]] += recording.chance(i)
        self.alpha: Array = right / seen
        self.first: Array = first / first.sum()
        self.follows: Array = follows / follows.sum(axis=1, keepdims=True)


def optimal(recording: Recording, hindsight: Hindsight | None = None) -> Outcome:
    """Replay with the dynamic programme's rule; hindsight defaults to this answer's own."""
    learned = hindsight or Hindsight([recording])
    best = replay_fixed(recording, 0)
    rho = best.tokens_per_s
    for _ in range(_N_ITERATIONS):
        found = replay(
            recording,
            lambda costs, rho=rho: _Programme(costs, learned, rho),  # type: ignore[misc]
            use_model=True,
            use_copies=False,
        )
        if found.tokens_per_s > best.tokens_per_s:
            best = found
        rho = max(rho, found.tokens_per_s)
    return best


class _Programme:
    """A controller and its own pace; ρ is fixed, so that one table serves the whole answer."""

    def __init__(self, costs: Costs, learned: Hindsight, rho: float) -> None:
        self._costs, self._learned, self._rho = costs, learned, rho
        self._worth: Array | None = None

    def worth_reading(self, n_tokens: int, n_ahead: int) -> bool:
        return True

    def begin(self, depth: int, limit: int, *, may_trim: bool, n_replay: int = 0) -> _Programme:
        if self._worth is None:
            self._verify = self._costs.target.row(depth, N_DRAFT_MAX + 1)
            self._draft = self._costs.draft.row(depth, 2)
            self._worth = self._solve()
        self._limit = min(limit, N_DRAFT_MAX)
        self._n, self._chance, self._bin, self._stopped = 0, 1.0, -1, False
        return self

    def observe(self, round_: Round) -> None:
        """Everything was known from the start."""

    def source(self, match_length: int, n_available: int, n_missing: int | None) -> Source:
        extra = (self._draft[2] - self._draft[1]) if (n_missing or 1) > 1 else 0.0
        stop = -self._rho * self._verify[1]
        go = self._onward(0, 1.0, -1) - self._rho * extra
        return "model" if self._limit > 0 and go > stop else "none"

    def another(self) -> bool:
        if self._stopped or self._n >= self._limit:
            return False
        if self._n == 0:
            return True
        return (
            self._onward(self._n, self._chance, self._bin) > -self._rho * self._verify[self._n + 1]
        )

    def take(self, confidence: float) -> bool:
        b = _bin(confidence)
        chance = self._chance * self._learned.alpha[b]
        assert self._worth is not None
        include = chance + self._worth[self._n + 1, _nearest(chance), b]
        if include <= -self._rho * self._verify[self._n + 1]:
            self._stopped = True
            return False
        self._n, self._chance, self._bin = self._n + 1, chance, b
        return True

    def copy(self, match_length: int, n_available: int) -> int:
        return 0

    def trim(self) -> int:
        return self._n

    def worth(self) -> tuple[float, ...]:
        """Nothing is shown of it."""
        return ()

    def decoded(self, n_tokens: int, depth: int, seconds: float) -> None:
        """Costs are the recorded ones."""

    def _solve(self) -> Array:
        """worth[n, chance, bin]: the best future after n tokens, those already counted apart."""
        n_bins = len(self._learned.alpha)
        worth = np.empty((N_DRAFT_MAX + 2, len(_CHANCES), n_bins))
        worth[N_DRAFT_MAX:] = -self._rho * self._verify[N_DRAFT_MAX + 1]
        for n in range(N_DRAFT_MAX - 1, -1, -1):
            stop = -self._rho * self._verify[n + 1]
            gain = self._gain(n, worth, stop)
            onward = gain @ self._learned.follows.T - self._rho * self._draft[1]
            worth[n] = np.maximum(stop, onward)
        return worth

    def _gain(self, n: int, worth: Array, stop: float) -> Array:
        """[chance, next bin]: the next token taken, or left where that is better."""
        chances = np.outer(_CHANCES, self._learned.alpha)
        at = np.array([[_nearest(c) for c in row] for row in chances])
        taken = chances + np.take_along_axis(worth[n + 1], at, axis=0)
        best: Array = np.maximum(stop, taken)
        return best

    def _onward(self, n: int, chance: float, b: int) -> float:
        assert self._worth is not None
        stop = -self._rho * self._verify[n + 1]
        following = self._learned.first if b < 0 else self._learned.follows[b]
        total = 0.0
        for j, share in enumerate(following):
            after = chance * self._learned.alpha[j]
            total += share * max(stop, after + self._worth[n + 1, _nearest(after), j])
        return float(total - self._rho * self._draft[1])


def _bin(confidence: float) -> int:
    return int(np.searchsorted(EDGES, confidence, side="right"))


def _nearest(chance: float) -> int:
    return min(len(_CHANCES) - 1, max(0, round(-math.log(max(chance, 1e-9)) / 0.1)))


def _pairs(values: Sequence[float]) -> list[tuple[float, float]]:
    return list(itertools.pairwise(values))
