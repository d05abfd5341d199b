"""A pace that counts what it grants, so that a draft cannot be longer than was asked for."""

from __future__ import annotations

from localspec.decoding.controller import Pace, Source

__all__ = ["MeteredPace"]


class MeteredPace:
    """The pace itself, and `n_granted`: tokens that take() and copy() allowed."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.n_granted = 0

    def source(self, match_length: int, n_available: int, n_missing: int | None) -> Source:
        """As the pace says."""
        return self._pace.source(match_length, n_available, n_missing)

    def another(self) -> bool:
        """As the pace says."""
        return self._pace.another()

    def take(self, confidence: float) -> bool:
        """As the pace says, counted."""
        granted = self._pace.take(confidence)
        self.n_granted += granted
        return granted

    def copy(self, match_length: int, n_available: int) -> int:
        """As the pace says, counted."""
        n = self._pace.copy(match_length, n_available)
        self.n_granted += n
        return n

    def trim(self) -> int:
        """As the pace says."""
        return self._pace.trim()

    def worth(self) -> tuple[float, ...]:
        """As the pace says."""
        return self._pace.worth()

    def decoded(self, n_tokens: int, depth: int, seconds: float) -> None:
        """Costs of a strange drafter are not those of the draft model."""
