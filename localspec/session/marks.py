"""Which part of the text came from where: rounds turned into marked pieces of text.

Text appears when a round releases it, so half characters and stop strings stay hidden here too.
"""

from __future__ import annotations

import codecs
import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from localspec.decoding.events import Round
from localspec.visible import visible

__all__ = ["LEGEND", "Kind", "Mark", "MarkedText", "figures", "fragment", "mark_all", "marked"]

Kind: TypeAlias = Literal["model", "ngram", "target", "rejected"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A piece of text and who wrote it; `rejected` ones are not part of the answer.

    kind ngram: a copy of the text, or a draft token of a custom drafter.

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


LEGEND = (
    '<p class=figures><span class="model">accepted from the draft model</span> · '
    '<span class="ngram">accepted copy of the text</span> · the target’s own · '
    "<del>rejected</del> (hover: what the target said instead)</p>"
)

_FRAGMENT = """<div class="localspec"><style>
.localspec pre {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: 0 }}
.localspec span.model {{ color: #1a7f37; text-decoration: underline }}
.localspec span.ngram {{ color: #0969da; text-decoration: underline dotted }}
.localspec del {{ color: #b35900; opacity: .8 }}
.localspec .figures {{ font-size: .85em; opacity: .8; margin: .3em 0 0 }}
</style><pre>{text}</pre>{below}</div>"""


def marked(marks: Iterable[Mark], text: str) -> str:
    """The answer with its rejected tokens; the plain text where not every round is known."""
    marks = list(marks)
    if "".join(mark.text for mark in marks if mark.kind != "rejected") != text:
        return _safe(text)
    return "".join(map(_one, marks))


def figures(timings: Mapping[str, Any], reason: str | None) -> str:
    """One line: tokens, speed, acceptance; empty without any token."""
    if not timings.get("predicted_n"):
        return ""
    accepted = timings.get("draft_n_accepted", 0)
    n_verified = accepted + timings.get("draft_n_rejected", 0)
    words = (
        f"{timings['predicted_n']} tokens · {timings.get('predicted_per_second', 0.0):.1f} tokens/s"
    )
    if n_verified:
        words += f" · acceptance rate {accepted / n_verified:.0%}"
    if reason and reason != "eos":
        words += f" · ended: {reason}"
    return f"<p class=figures>{html.escape(words)}</p>"


def fragment(marks: Iterable[Mark], text: str, below: str) -> str:
    """A piece of a page with its own style, for notebooks."""
    return _FRAGMENT.format(text=marked(marks, text), below=LEGEND + below)


def _one(mark: Mark) -> str:
    if mark.kind == "rejected":
        instead = f' title="the target said {_safe(repr(mark.instead))}"'
        return f"<del{instead}>{_safe(mark.text).replace(chr(10), '⏎')}</del>"
    if mark.kind == "target":
        return _safe(mark.text)
    return f'<span class="{mark.kind}">{_safe(mark.text)}</span>'


def _safe(text: str) -> str:
    return html.escape(visible(text))
