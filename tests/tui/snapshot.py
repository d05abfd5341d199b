"""Screens as text files: the characters, then the style of each, so that a change shows in a diff.

`UPDATE_SNAPSHOTS=1 pytest tests/tui` writes them anew; look at what changed before committing.
"""

from __future__ import annotations

import os
from pathlib import Path

from rich.style import Style

from localspec.tui.app import ChatApp

__all__ = ["assert_snapshot", "drawn"]

_FOLDER = Path(__file__).parent / "snapshots"
_LETTERS = ".abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def drawn(app: ChatApp) -> str:
    """The screen: its text, the same cells as letters for their styles, and what those mean."""
    letters: dict[str, str] = {}
    text, styles = [], []
    for strip in app.screen._compositor.render_strips():
        line, marks = "", ""
        for segment in strip:
            letter = letters.setdefault(_words(segment.style), _LETTERS[len(letters)])
            line += segment.text
            marks += letter * len(segment.text)
        text.append(line.rstrip())
        styles.append(marks)
    meaning = [f"{letter} {words}" for words, letter in letters.items()]
    return "\n".join([*text, "", *styles, "", *meaning, ""])


def assert_snapshot(app: ChatApp, name: str) -> None:
    """The screen is the one on file."""
    path = _FOLDER / f"{name}.txt"
    now = drawn(app)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(now, "utf-8")
    assert path.exists(), f"there is no snapshot {name}: UPDATE_SNAPSHOTS=1 writes it"
    assert now == path.read_text("utf-8"), f"{name} looks different now:\n{now}"


def _words(style: Style | None) -> str:
    if style is None:
        return "default"
    kinds = ("bold", "dim", "italic", "underline", "reverse", "strike")
    words = [kind for kind in kinds if getattr(style, kind)]
    fore = style.color.name if style.color else "default"
    back = style.bgcolor.name if style.bgcolor else "default"
    return " ".join([*words, fore, "on", back])
