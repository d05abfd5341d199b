"""The grammar's state along an answer: behind the committed tokens, and behind each drafted one.

A state never changes. Drafted tokens lead to states of their own, which are thrown away when the
token is refused; `commit` alone moves the answer's state, so that a rejected token leaves no trace.

Knows the shape of a state (GrammarState has it), not where it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from localspec.sampling.mask import Mask

__all__ = ["Constraint", "State"]

FORCED_MATCH = 64  # a controller takes forced text for a copy after a match of this length
_MOST_FORCED = 96  # bytes of forced text that are looked for


class State(Mask, Protocol):
    """What may follow some tokens."""

    @property
    def may_end(self) -> bool:
        """True when the text is complete here."""

    @property
    def must_end(self) -> bool:
        """True when nothing but the end may follow."""

    def after(self, token: int) -> State | None:
        """The state behind one more token; None when it may not come next."""

    def forced_bytes(self, most: int) -> bytes:
        """The bytes that must come next, whatever is chosen."""


class Constraint:
    """The states of one answer.

    start: before its first token. spell: tokens whose pieces join to the given bytes, or none.
    piece: the bytes of a token.
    """

    def __init__(
        self, start: State, spell: Callable[[bytes], Sequence[int]], piece: Callable[[int], bytes]
    ) -> None:
        self._states: list[State | None] = [start]  # [0] committed, [i] behind i drafted tokens
        self._drafted: list[int] = []
        self._spell = spell
        self._piece = piece
        self._ahead: bytes | None = None  # forced text behind the committed tokens, where known

    @property
    def committed(self) -> State:
        """The state behind the committed tokens."""
        state = self._states[0]
        assert state is not None
        return state

    def after(self, draft_ids: Sequence[int]) -> State | None:
        """The state behind drafted tokens; None when one of them is not allowed."""
        n = len(draft_ids)
        shared = 0
        while shared < min(n, len(self._drafted)) and self._drafted[shared] == draft_ids[shared]:
            shared += 1
        if shared < min(n, len(self._drafted)):  # another path
            del self._drafted[shared:]
            del self._states[shared + 1 :]
        for token in draft_ids[shared:]:
            last = self._states[-1]
            self._drafted.append(token)
            self._states.append(None if last is None else last.after(token))
        return self._states[n]

    def n_valid(self, draft_ids: Sequence[int]) -> int:
        """How many leading drafted tokens the grammar allows."""
        for i in range(len(draft_ids)):
            if self.after(draft_ids[: i + 1]) is None:
                return i
        return len(draft_ids)

    def valid_span(self, draft_ids: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of `tokens` may follow the drafted ones."""
        return self.n_valid([*draft_ids, *tokens]) - len(draft_ids)

    def forced(self, draft_ids: Sequence[int]) -> Sequence[int]:
        """Tokens that spell the text which must follow the drafted ones; often none.

        The text is certain, its division into tokens a guess: the target judges them like any
        other draft.
        """
        if not draft_ids and self._ahead is not None:
            text = self._ahead
        else:
            state = self.after(draft_ids)
            text = b"" if state is None else state.forced_bytes(_MOST_FORCED)
            if not draft_ids:
                self._ahead = text
        tokens = self._spell(text) if text else ()
        return tokens[: self.valid_span(draft_ids, tokens)] if tokens else ()

    def commit(self, token: int) -> None:
        """Append a token to the answer. It was allowed."""
        if self._drafted[:1] == [token]:
            del self._drafted[0]
            del self._states[0]
        else:
            self._states = [self.committed.after(token)]
            self._drafted = []
        assert self._states[0] is not None, f"token {token} was committed against the grammar"
        piece, ahead = self._piece(token), self._ahead
        is_known = ahead is not None and len(ahead) > len(piece) and ahead.startswith(piece)
        self._ahead = ahead[len(piece) :] if ahead is not None and is_known else None
