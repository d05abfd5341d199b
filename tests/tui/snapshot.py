"""Screens as text files: the characters, then the style of each, so that a change shows in a diff.

`UPDATE_SNAPSHOTS=1 pytest tests/tui` writes them anew; look at what changed before committing.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from rich.style import Style

from localspec.tui.app import ChatApp
from tests.tui.driving import Driven

__all__ = ["assert_snapshot"]

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


async def assert_snapshot(test: Driven, name: str) -> None:
    """The screen becomes the one on file; Markdown and sparklines take a few turns of the loop."""
    path = _FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        await asyncio.sleep(1.0)
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn(test.app), "utf-8")
    assert path.exists(), f"there is no snapshot {name}: UPDATE_SNAPSHOTS=1 writes it"
    wanted = path.read_text("utf-8")
    deadline = time.monotonic() + 3
    while (now := drawn(test.app)) != wanted and time.monotonic() < deadline:
        await test.pilot.pause()
    assert now == wanted, f"{name} looks different now:\n{now}"


def _words(style: Style | None) -> str:
    if style is None:
        return "default"
    kinds = ("bold", "dim", "italic", "underline", "reverse", "strike")
    words = [kind for kind in kinds if getattr(style, kind)]
    fore = style.color.name if style.color else "default"
    back = style.bgcolor.name if style.bgcolor else "default"
    return " ".join([*words, fore, "on", back])
