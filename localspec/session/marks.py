"""Which part of the text came from where: rounds turned into marked pieces of text.

Text appears when a round releases it, so half characters and stop strings stay hidden here too.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from localspec.decoding.events import Round

__all__ = ["Kind", "Mark", "MarkedText", "mark_all"]

Kind: TypeAlias = Literal["model", "ngram", "target", "rejected"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A piece of text and who wrote it; `rejected` ones are not part of the answer.

    kind ngram: a copy of the text, or the guess of an own drafter.

    instead: for a rejected piece, what the target said in its place.
    """

    text: str
    kind: Kind
    instead: str = ""


class MarkedText:
    """Feed it the rounds of one answer in order."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending: list[Mark] = []  # not yet released

    def push(self, round_: Round) -> list[Mark]:
        """What this round adds. The kept marks of all rounds add up to the text of the answer."""
        for token in round_.tokens:
            if token.committed:
                text = self._decoder.decode(token.piece)
                self._pending.append(Mark(text, _kind(token.source)))
            elif token.verdict == "rejected":
                correction = round_.tokens[-1]
                instead = correction.text if correction.verdict == "correction" else ""
                self._pending.append(Mark(token.text, "rejected", instead))
        return list(self._released(round_.text))

    def _released(self, text: str) -> Iterable[Mark]:
        n = len(text)
        while self._pending:
            mark = self._pending[0]
            if mark.kind == "rejected":
                self._pending.pop(0)
                yield mark
                continue
            if n <= 0:
                return
            now, later = mark.text[:n], mark.text[n:]
            n -= len(now)
            if now:
                yield Mark(now, mark.kind)
            if later:
                self._pending[0] = Mark(later, mark.kind)
                return
            self._pending.pop(0)
        if n > 0:  # half a character at the end of the answer, flushed as U+FFFD
            yield Mark(text[len(text) - n :], "target")


def mark_all(rounds: Iterable[Round]) -> list[Mark]:
    """The marks of a whole answer."""
    marked = MarkedText()
    return [mark for round_ in rounds for mark in marked.push(round_)]


def _kind(source: str) -> Kind:
    return "model" if source == "model" else "target" if source == "target" else "ngram"
