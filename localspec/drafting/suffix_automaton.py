"""Where the end of a text occurred before: an online suffix automaton over token ids.

Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text". Appending a token
takes constant amortised time whatever the length of the text; nothing is ever rescanned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Match", "SuffixAutomaton"]

_ROOT = 0
_N_REFRESHED = 32  # states whose latest end is renewed for each token: the longest suffixes


@dataclass(frozen=True, slots=True)
class Match:
    """The last `length` tokens of a text also stand before position `end` of the indexed text."""

    length: int
    end: int


class SuffixAutomaton:
    """All substrings of a growing text, each with the end of a recent occurrence.

    A state stands for the substrings that end at the same set of positions: `_longest` is the
    length of the longest, `_link` the state of the longest suffix that ends elsewhere too.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link: list[int] = [-1]
        self._longest: list[int] = [0]
        self._end: list[int] = [0]
        self._last = _ROOT
        self.match = Match(0, 0)
        self._at = _ROOT  # the state of `match`

    def extend(self, ids: Iterable[int]) -> None:
        """Append tokens; `match` is then the longest suffix that occurred before."""
        for token in ids:
            self._append(token)

    def follow(self, match: Match | None, state: int | None, token: int) -> tuple[Match, int]:
        """The longest match of the text matched so far plus `token`, without appending it.

        match, state: what this returned for the token before; None starts at the text's own end.
        """
        at, length = (self._at, self.match.length) if match is None else (state or 0, match.length)
        while at != _ROOT and token not in self._next[at]:
            at = self._link[at]
            length = min(length, self._longest[at])
        at = self._next[at].get(token, -1)
        if at < 0:
            return Match(0, 0), _ROOT
        return Match(length + 1, self._end[at]), at

    def _append(self, token: int) -> None:
        self.ids.append(token)
        new = self._state({}, self._longest[self._last] + 1, _ROOT, len(self.ids))
        at = self._last
        while at >= 0 and token not in self._next[at]:
            self._next[at][token] = new
            at = self._link[at]
        if at >= 0:
            self._link[new] = self._split(at, token)
        self._last = new
        self._at = self._link[new]
        self.match = Match(self._longest[self._at], self._end[self._at] if self._at else 0)
        self._refresh(self._link[new])

    def _split(self, before: int, token: int) -> int:
        """The state of exactly the substring `before` + token; cloned off when it is shared."""
        found = self._next[before][token]
        length = self._longest[before] + 1
        if self._longest[found] == length:
            return found
        clone = self._state(dict(self._next[found]), length, self._link[found], self._end[found])
        self._link[found] = clone
        at = before
        while at >= 0 and self._next[at].get(token) == found:
            self._next[at][token] = clone
            at = self._link[at]
        return clone

    def _refresh(self, at: int) -> None:
        for _ in range(_N_REFRESHED):
            if at <= _ROOT:
                return
            self._end[at] = len(self.ids)
            at = self._link[at]

    def _state(self, following: dict[int, int], longest: int, link: int, end: int) -> int:
        self._next.append(following)
        self._longest.append(longest)
        self._link.append(link)
        self._end.append(end)
        return len(self._next) - 1
