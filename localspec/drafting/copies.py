"""What followed the last time: drafts copied from the text so far, free of model cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.decoding.controller import Pace
from localspec.decoding.draft import Draft
from localspec.drafting.suffix_automaton import Match, SuffixAutomaton
from localspec.sampling.constraint import Constraint

__all__ = ["Copies", "Running"]

_RESUMABLE = 16  # a copy this long that breaks at one token is tried again behind it
_RESUMED = 5  # and counts as a match of this length
_NEARBY = 24
_CHECKED = 32  # tokens of a span that a grammar is asked about


@dataclass(frozen=True, slots=True)
class Running:
    """The match at the end of the text with drafted tokens behind it."""

    match: Match
    state: int


class Copies:
    """Finds the longest suffix of the text that occurred before, the most recent of them.

    The index outlives an answer: a prompt that continues the text adds its new tokens only.
    constraint: the grammar of this answer; copies end where it forbids what follows.
    """

    constraint: Constraint | None = None

    def __init__(self) -> None:
        self._index = SuffixAutomaton()
        self._source = Match(0, 0)  # of the last copy: its match, ending where the copy began
        self._n_before = 0  # committed tokens when it was made
        self._n_copied = 0

    def prepare(self, ids: Sequence[int]) -> None:
        """Index a prompt; the index begins anew when the text is another one."""
        known = self._index.ids
        if known != list(ids[: len(known)]):
            self._index = SuffixAutomaton()
        self._source = Match(0, 0)
        self._n_copied = 0
        self._sync(ids)

    def find(self, ids: Sequence[int]) -> Match:
        """The match to copy from, length 0 when there is none. `ids` continue the prepared text."""
        self._sync(ids)
        match = self._index.match
        near = self._after_break(len(ids))
        if near is None:
            return match
        if match.length and near.end <= match.end <= near.end + _NEARBY:
            return Match(match.length + near.length, match.end)  # the same passage goes on
        return near if match.length < near.length else match

    def follow(self, running: Running | None, token: int) -> Running:
        """The match once `token` is drafted too."""
        if running is None:
            return Running(*self._index.follow(None, None, token))
        return Running(*self._index.follow(running.match, running.state, token))

    def n_available(self, match: Match, draft_ids: Sequence[int] = ()) -> int:
        """Tokens that stand behind the match and may follow the drafted ones."""
        n = len(self._index.ids) - match.end if match.length else 0
        if n and self.constraint is not None:
            span = self._index.ids[match.end : match.end + min(n, _CHECKED)]
            n = self.constraint.valid_span(draft_ids, span)
        return n

    def splice(self, match: Match, draft: Draft, pace: Pace, n_committed: int) -> bool:
        """Append to the draft what stands behind the match, as far as the pace wants it.

        n_committed: tokens of the text before the draft. False when nothing was appended.
        """
        n = pace.copy(match.length, self.n_available(match, draft.ids))
        if not n:
            return False
        self._source, self._n_before, self._n_copied = match, n_committed + len(draft.ids), n
        draft.append_copy(self._index.ids[match.end : match.end + n])
        return True

    def _sync(self, ids: Sequence[int]) -> None:
        self._index.extend(ids[len(self._index.ids) :])

    def _after_break(self, n_committed: int) -> Match | None:
        """Behind the token at which the last copy broke, while that is recent."""
        if not self._n_copied:
            return None
        n_accepted = n_committed - self._n_before - 1
        if not 0 <= n_accepted < self._n_copied + _NEARBY:
            self._n_copied = 0
            return None
        if self._source.length + n_accepted < _RESUMABLE:
            return None
        end = self._source.end + n_accepted + 1
        return Match(_RESUMED, end) if end < len(self._index.ids) else None
