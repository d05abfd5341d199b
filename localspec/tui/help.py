"""Every key and command on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.chat.commands import COMMANDS

__all__ = ["HelpScreen", "help_text"]

KEYS = (
    ("Enter", "send"),
    ("Shift+Enter, Ctrl+J", "new line"),
    ("Up, Down", "earlier messages, from the first and last line"),
    ("Ctrl+G", "write in $EDITOR"),
    ("Esc", "stop the answer; leave editing; close a window"),
    ("Tab, Shift+Tab", "message box, last message, rounds"),
    ("Ctrl+R", "answer again"),
    ("F4", "copy the last answer"),
    ("Ctrl+T, F2", "draft tokens: off, inline, inspector"),
    ("Ctrl+O", "open or fold the thinking"),
    ("PageUp, PageDown", "scroll the conversation"),
    ("Ctrl+End", "go to its end and stay there"),
    ("Ctrl+P", "command palette"),
    ("F1", "this help"),
    ("Ctrl+C", "copy the selection; else stop, and twice quits"),
    ("Ctrl+Q", "quit; the chat is saved"),
)

MESSAGE_KEYS = (
    ("Up, Down", "another message"),
    ("c or y, b", "copy it, or its last code block"),
    ("e", "edit it and ask again"),
    ("r", "answer it again"),
    ("Left, Right", "another branch"),
    ("t", "show its draft tokens, or its Markdown"),
    ("o", "open its thinking"),
)

ROUND_KEYS = (
    ("Up, Down", "another round"),
    ("Left, Right", "another token"),
    ("PageUp, PageDown", "ten rounds"),
    ("Home, End", "first, last round"),
)


def help_text(width: int = 78) -> str:
    """Keys and commands as plain lines."""
    commands = tuple((f"/{c.name} {c.usage}".rstrip(), c.summary) for c in COMMANDS)
    tables = (
        ("Keys", KEYS),
        ("On a message", MESSAGE_KEYS),
        ("In the inspector", ROUND_KEYS),
        ("Commands", commands),
    )
    parts = [_table(title, rows, width) for title, rows in tables]
    return "\n\n".join([*parts, "@path in a message attaches a text file."])


def _table(title: str, rows: Sequence[tuple[str, str]], width: int) -> str:
    left = max(len(key) for key, _ in rows) if width >= 60 else 0
    lines = [f"  {key:<{left}}  {what}" if left else f"  {key}\n      {what}" for key, what in rows]
    return "\n".join([title, *lines])


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
