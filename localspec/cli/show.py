"""Three ways to print the event stream: text, styled tokens, JSON lines."""

from __future__ import annotations

import json
import os
from typing import IO

from localspec.decoding.event_json import as_json
from localspec.decoding.events import Event, Round
from localspec.session.marks import MarkedText
from localspec.visible import visible

__all__ = ["JsonPrinter", "StyledPrinter", "TextPrinter"]


class TextPrinter:
    """The text alone, as it is released, and a line end behind a text without one.

    Control characters are made visible on a terminal.
    """

    def __init__(self, out: IO[str], *, terminal: bool) -> None:
        self._out = out
        self._terminal = terminal
        self._last = "\n"

    def show(self, event: Event) -> None:
        """Print what the event adds to the text."""
        if isinstance(event, Round) and event.text:
            self._last = event.text[-1]
            self._out.write(visible(event.text) if self._terminal else event.text)
            self._out.flush()

    def end(self) -> None:
        """End the last line, so that what follows (figures, a prompt) begins one."""
        if self._last != "\n":
            self._out.write("\n")
        self._out.flush()


class StyledPrinter:
    """Accepted tokens coloured, rejected ones struck through, the target's own ones plain.

    Without colour (NO_COLOR) accepted tokens are underlined and rejected ones stand in [-…-].
    Text appears when it is released, so stop strings stay hidden here too.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._marked = MarkedText()
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._styles = {
            "model": ("\x1b[4m", "\x1b[24m") if plain else ("\x1b[32m", "\x1b[39m"),
            "ngram": ("\x1b[4m", "\x1b[24m") if plain else ("\x1b[36m", "\x1b[39m"),
            "target": ("", ""),
            "rejected": ("[-", "-]") if plain else ("\x1b[31;9m", "\x1b[39;29m"),
        }
        if os.environ.get("TERM") == "dumb":
            self._styles.update(model=("", ""), ngram=("", ""))

    def show(self, event: Event) -> None:
        """Print the released text of a round in the styles of its tokens."""
        if not isinstance(event, Round):
            return
        for mark in self._marked.push(event):
            text = mark.text.replace("\n", "⏎") if mark.kind == "rejected" else mark.text
            self._out.write(self._styled(text, mark.kind))
        self._out.flush()

    def end(self) -> None:
        """A line end and the legend."""
        legend = ", ".join(
            self._styled(name, style)
            for name, style in (("accepted", "model"), ("rejected", "rejected"))
        )
        self._out.write(f"\n({legend}, the rest is the target's own)\n")
        self._out.flush()

    def _styled(self, text: str, style: str) -> str:
        before, after = self._styles[style]
        return f"{before}{visible(text)}{after}" if text else ""


class JsonPrinter:
    """One flat JSON object a line, with `type`: prefill, round, finished."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def show(self, event: Event) -> None:
        """Print one line."""
        self._out.write(json.dumps(as_json(event), ensure_ascii=False, allow_nan=False) + "\n")
        self._out.flush()

    def end(self) -> None:
        """Every line is already complete."""
