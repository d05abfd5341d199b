"""A grammar along an answer: which tokens it allows behind the committed and the drafted ones.

One matcher is moved along the draft and back. What it said of a position is kept while the draft
begins the same way, so that drafter and target ask once; `commit` alone moves the answer on, so
that a rejected token leaves no trace.

Knows what a matcher does (structured.Matcher), not where it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from localspec.errors import EngineError
from localspec.sampling.mask import Mask

__all__ = ["Constraint", "GrammarMatcher", "Position"]

FORCED_MATCH = 64  # a controller takes forced text for a copy after a match of this length
_MOST_FORCED = 96  # bytes of forced text that are spelled


class GrammarMatcher(Protocol):
    """structured.Matcher, as far as it is needed here. Tokens that end an answer never reach it."""

    @property
    def end_ids(self) -> Set[int]: ...
    @property
    def may_end(self) -> bool: ...
    def consume(self, tokens: Sequence[int]) -> int: ...
    def n_valid(self, tokens: Sequence[int]) -> int: ...
    def rollback(self, n: int) -> None: ...
    def allowed(self) -> Mask: ...
    def forced_bytes(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Position:
    """What may follow some tokens.

    may_end: the text is complete here. must_end: and nothing but the end may follow.
    """

    allowed: Mask
    may_end: bool
    must_end: bool


class Constraint:
    """The grammar's positions in one answer.

    matcher: before the first token. spell: tokens whose pieces join to the given bytes, or none.
    piece: the bytes of a token.
    """

    def __init__(
        self,
        matcher: GrammarMatcher,
        spell: Callable[[bytes], Sequence[int]],
        piece: Callable[[int], bytes],
    ) -> None:
        self._matcher = matcher
        self._end_ids = matcher.end_ids
        self._spell = spell
        self._piece = piece
        self._path: list[int] = []  # what the matcher consumed behind the committed tokens
        self._known: list[Position | None] = [None]  # [i] behind i of these
        self._ahead: bytes | None = None  # forced text behind the committed tokens, where known

    @property
    def committed(self) -> Position:
        """Behind the committed tokens."""
        return self._position(0)

    def after(self, draft_ids: Sequence[int]) -> Position | None:
        """Behind drafted tokens; None when one of them is not allowed."""
        n = self._n_before_end(draft_ids)
        if self._follow(draft_ids[:n]) < n:
            return None
        position = self._position(n)
        if n == len(draft_ids):
            return position
        is_over = position.may_end and self._end_ids >= set(draft_ids[n:])
        return self._over(position) if is_over else None

    def n_valid(self, draft_ids: Sequence[int]) -> int:
        """How many leading drafted tokens the grammar allows."""
        n = self._n_before_end(draft_ids)
        shared = self._shared(draft_ids[:n])
        if shared < n:
            self._back_to(shared)
            shared += self._matcher.n_valid(draft_ids[shared:n])
        if shared < n or n == len(draft_ids) or self.after(draft_ids[: n + 1]) is None:
            return shared
        others = (i for i in range(n, len(draft_ids)) if draft_ids[i] not in self._end_ids)
        return next(others, len(draft_ids))

    def valid_span(self, draft_ids: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of `tokens` may follow the drafted ones."""
        return self.n_valid([*draft_ids, *tokens]) - len(draft_ids)

    def forced(self, draft_ids: Sequence[int]) -> Sequence[int]:
        """Tokens that spell the text which must follow the drafted ones; often none.

        The text is certain, its division into tokens a guess: the target verifies them like
        any other draft.
        """
        if not draft_ids and self._ahead is not None:
            text = self._ahead
        else:
            text = b""
            n = len(draft_ids)
            if self._n_before_end(draft_ids) == n and self._follow(draft_ids) == n:
                self._back_to(n)
                text = self._matcher.forced_bytes()[:_MOST_FORCED]
            if not draft_ids:
                self._ahead = text
        tokens = self._spell(text) if text else ()
        return tokens[: self.valid_span(draft_ids, tokens)] if tokens else ()

    def commit(self, token: int) -> None:
        """Append a token to the answer. It was allowed, and is none that ends it.

        Raises EngineError when the matcher, at one of its limits, does not take it all the same.
        """
        if self._path[:1] != [token]:
            self._back_to(0)
            if self._follow([token]) < 1:
                here = self._known[0]
                is_allowed = here is not None and here.allowed[token]
                assert is_allowed, f"token {token} was committed against the grammar"
                raise EngineError("the grammar is too complex")
        del self._path[0]
        del self._known[0]
        piece, ahead = self._piece(token), self._ahead
        is_known = ahead is not None and len(ahead) > len(piece) and ahead.startswith(piece)
        self._ahead = ahead[len(piece) :] if ahead is not None and is_known else None

    def _n_before_end(self, draft_ids: Sequence[int]) -> int:
        ends = (i for i, token in enumerate(draft_ids) if token in self._end_ids)
        return next(ends, len(draft_ids))

    def _shared(self, draft_ids: Sequence[int]) -> int:
        n = min(len(draft_ids), len(self._path))
        return next((i for i in range(n) if draft_ids[i] != self._path[i]), n)

    def _follow(self, draft_ids: Sequence[int]) -> int:
        """Bring the matcher along the draft, as far as it is allowed; how far that is."""
        shared = self._shared(draft_ids)
        if shared == len(draft_ids):
            return shared
        self._back_to(shared)
        n = self._matcher.consume(draft_ids[shared:])
        self._path += draft_ids[shared : shared + n]
        self._known += [None] * n
        return shared + n

    def _back_to(self, n: int) -> None:
        """Behind n tokens of the path; the rest is forgotten."""
        self._matcher.rollback(len(self._path) - n)
        del self._path[n:]
        del self._known[n + 1 :]

    def _position(self, n: int) -> Position:
        found = self._known[n]
        if found is None:
            self._back_to(n)
            allowed = self._matcher.allowed()
            may_end = self._matcher.may_end
            n_ends = sum(bool(allowed[token]) for token in self._end_ids)
            must_end = may_end and int(np.count_nonzero(allowed)) == n_ends
            found = self._known[n] = Position(allowed, may_end, must_end)
        return found

    def _over(self, position: Position) -> Position:
        """Behind a token that ends the answer, nothing but more of these makes sense."""
        allowed = np.zeros_like(position.allowed)
        allowed[list(self._end_ids)] = True
        return Position(allowed, may_end=True, must_end=True)
