"""Every key and command on one screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.chat.commands import COMMANDS

__all__ = ["KEYS", "HelpScreen", "help_text"]

KEYS = (
    ("Enter", "send"),
    ("Shift+Enter, Ctrl+J", "new line"),
    ("Up, Down", "earlier messages, from the first and last line"),
    ("Ctrl+G", "write in $EDITOR"),
    ("Esc", "stop the answer; leave editing; close a window"),
    ("Tab, Shift+Tab", "between the message box, the conversation and the rounds"),
    ("Ctrl+R", "answer again"),
    ("F4", "copy the last answer"),
    ("Ctrl+T, F2", "guesses: off, inline, inspector"),
    ("Ctrl+O", "open or fold the thinking"),
    ("PageUp, PageDown, Ctrl+End", "scroll the conversation; to its end"),
    ("Ctrl+P", "command palette"),
    ("F1", "this help"),
    ("Ctrl+C", "copy what is selected; else stop, and twice quits; the chat is saved"),
    ("Ctrl+Q", "quit"),
)

MESSAGE_KEYS = (
    ("Up, Down", "another message"),
    ("c or y, b", "copy it, or its last code block"),
    ("e", "ask it differently"),
    ("r", "answer it again"),
    ("Left, Right", "walk between branches"),
    ("t", "show its guesses, or its Markdown"),
    ("o", "open its thinking"),
)

LANE_KEYS = (
    ("Up, Down", "another round"),
    ("Left, Right", "another token"),
    ("PageUp, PageDown", "ten rounds"),
    ("Home, End", "first, last round"),
)


def help_text(width: int = 78) -> str:
    """Keys and commands as plain lines."""
    parts = []
    for title, keys in (
        ("Keys", KEYS),
        ("On a message", MESSAGE_KEYS),
        ("In the inspector", LANE_KEYS),
    ):
        parts.append(_table(title, keys, width))
    commands = [(f"/{c.name} {c.usage}".rstrip(), c.summary) for c in COMMANDS]
    parts.append(_table("Commands", commands, width))
    parts.append("@path in a message attaches a text file.")
    return "\n\n".join(parts)


def _table(title: str, rows: object, width: int) -> str:
    lines = [title]
    left = 34 if width >= 60 else 0
    for key, what in rows:  # type: ignore[attr-defined]
        lines.append(f"  {key:<{left}} {what}" if left else f"  {key}\n      {what}")
    return "\n".join(lines)


class HelpScreen(ModalScreen[None]):
    """Closed by Esc, Enter, q or F1."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: 80; max-width: 100%; height: 90%; border: round $primary;
                                  padding: 0 1; background: $surface; }
    HelpScreen Static { height: auto; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [("escape,enter,q,f1", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        """One scroll of text."""
        with VerticalScroll() as scroll:
            scroll.border_title = "help"
            scroll.border_subtitle = "Esc closes"
            yield Static(Content(help_text(min(78, self.app.size.width - 4))), markup=False)
