"""Marked pieces of text as HTML: who proposed what, and what was refused. No scripts.

Everything that a model wrote is escaped, and its control characters are made visible.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

from localspec.session.marks import Mark
from localspec.visible import visible

__all__ = ["LEGEND", "figures", "fragment", "marked"]

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
    judged = accepted + timings.get("draft_n_rejected", 0)
    words = (
        f"{timings['predicted_n']} tokens · {timings.get('predicted_per_second', 0.0):.1f} tokens/s"
    )
    if judged:
        words += f" · accepted {accepted} of {judged} judged"
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
