"""The widgets of the chat's screen, for those who fill them."""

from __future__ import annotations

from dataclasses import dataclass, field

from textual.widgets import Static

from localspec.tui.composer import Composer
from localspec.tui.inspector import Inspector
from localspec.tui.status import FiguresBar
from localspec.tui.transcript import Transcript

__all__ = ["ChatWidgets"]


def _line(name: str) -> Static:
    return Static(id=name, markup=False)


@dataclass(frozen=True, slots=True)
class ChatWidgets:
    """From the top of the screen to its bottom."""

    title: Static = field(default_factory=lambda: _line("title"))
    transcript: Transcript = field(default_factory=Transcript)
    inspector: Inspector = field(default_factory=Inspector)
    status: Static = field(default_factory=lambda: _line("status"))
    figures: FiguresBar = field(default_factory=FiguresBar)
    suggestions: Static = field(default_factory=lambda: _line("suggestions"))
    composer: Composer = field(default_factory=Composer)
