"""How many tokens to draft in the next round, and by whom.

A controller hands out one Pace a round, and the drafter asks it before each step. The answers
come from the past and from the draft so far, never from a token that is drawn and then dropped:
that would bend the law of *rejection* and *block*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from localspec.decoding.events import Round

__all__ = ["Controller", "FixedController", "FixedPace", "Pace", "Source"]

Source: TypeAlias = Literal["model", "ngram", "none"]

_SHORTEST_COPY = 2
_SURE_COPY = 5  # from this match length on, a fixed pace prefers the copy to the model


class Pace(Protocol):
    """The decisions of one round."""

    def source(self, match_length: int, n_available: int, n_missing: int | None) -> Source:
        """Who begins: a copy of `n_available` tokens after a match, the model, or nobody.

        n_missing: tokens that the draft model must read first; None without a draft model.
        """

    def another(self) -> bool:
        """Is one more decode of the draft model worth its time?"""

    def take(self, confidence: float) -> bool:
        """Is the next token worth a row, given the draft's top probability; asked before the draw.

        When the answer is True the token must be appended to the draft.
        """

    def copy(self, match_length: int, n_available: int) -> int:
        """How many tokens of a copied span to append now, 0 to go on without it."""

    def trim(self) -> int:
        """The best length of the finished draft; asked only where cutting it is lawful."""

    def worth(self) -> tuple[float, ...]:
        """worth[K]: tokens that a draft of K was expected to win over a plain step; may be ()."""

    def decoded(self, n_tokens: int, depth: int, seconds: float) -> None:
        """The draft model decoded n_tokens more in a cache of `depth`, and it took so long."""


class Controller(Protocol):
    """Chooses from the past alone, so that the law of the text is untouched."""

    def worth_reading(self, n_tokens: int, n_ahead: int) -> bool:
        """Should the draft model read n_tokens of a prompt for an answer of up to n_ahead?"""

    def begin(self, depth: int, limit: int, *, may_trim: bool, n_replay: int = 0) -> Pace:
        """The pace of the next round: at most `limit` drafted tokens after `depth` committed ones.

        may_trim: the draft is no random choice, so that it may be cut after it was made.
        n_replay: tokens before the last committed one that the batch must begin with.
        """

    def observe(self, round_: Round) -> None:
        """Learn from a finished round."""


class FixedController:
    """The same n_draft every round, clipped to the room there is.

    may_verify: batch sizes that may be used, None for all; a draft is then cut to the largest.
    """

    def __init__(self, n_draft: int, may_verify: Callable[[int], bool] | None = None) -> None:
        self.n_draft = n_draft
        self._may_verify = may_verify

    def worth_reading(self, n_tokens: int, n_ahead: int) -> bool:
        """Whenever anything is drafted."""
        return self.n_draft > 0

    def begin(self, depth: int, limit: int, *, may_trim: bool, n_replay: int = 0) -> FixedPace:
        """n_draft, or the limit when that is smaller."""
        return FixedPace(min(self.n_draft, limit), self._may_verify)

    def observe(self, round_: Round) -> None:
        """A fixed rule learns nothing."""


class FixedPace:
    """n_draft tokens, whatever they cost: a long match is copied, else the model drafts."""

    def __init__(self, n_draft: int, may_verify: Callable[[int], bool] | None = None) -> None:
        self._n_draft = self._left = n_draft
        self._may_verify = may_verify
        self._shortest = _SURE_COPY

    def source(self, match_length: int, n_available: int, n_missing: int | None) -> Source:
        """The model, unless it is absent or a long match is free."""
        if self._left < 1:
            return "none"
        if n_missing is None:
            self._shortest = _SHORTEST_COPY
        if n_available and match_length >= self._shortest:
            return "ngram"
        return "none" if n_missing is None else "model"

    def another(self) -> bool:
        """Until n_draft is reached."""
        return self._left > 0

    def take(self, confidence: float) -> bool:
        """Always."""
        self._left -= 1
        return True

    def copy(self, match_length: int, n_available: int) -> int:
        """All that fits, when the match is long."""
        n = min(self._left, n_available) if match_length >= self._shortest else 0
        self._left -= n
        return n

    def trim(self) -> int:
        """What was drafted, cut to a batch size that may be used."""
        n = self._n_draft - self._left
        while n > 0 and self._may_verify is not None and not self._may_verify(n + 1):
            n -= 1
        return n

    def worth(self) -> tuple[float, ...]:
        """Nothing was weighed."""
        return ()

    def decoded(self, n_tokens: int, depth: int, seconds: float) -> None:
        """Costs do not matter here."""
