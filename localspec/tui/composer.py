"""Where the person writes: Enter sends, Ctrl+J and Shift+Enter insert a line, Up recalls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from localspec.chat.commands import COMMANDS
from localspec.tui.status import fitted

__all__ = ["Composer", "suggestions"]

_BIG_PASTE = 2_000  # characters from which a paste is counted in tokens
_N_SUGGESTED = 7
_IDLE = "Ask something, or / for commands"
_WRITING = "Esc stops the answer"


class Composer(TextArea):
    """A growing text box with a history. `editing` is the turn that the text will replace."""

    DEFAULT_CSS = """
    Composer { height: auto; min-height: 3; min-width: 6; max-height: 40%; border: round $border;
               padding: 0 1; background: $background; }
    Composer:focus { border: round $primary; }
    Composer.-editing { border: round $warning; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Send"),
        Binding("ctrl+j,shift+enter", "newline", "Newline"),
        Binding("ctrl+g", "app.edit_outside", "Editor"),
    ]

    @dataclass
    class Submitted(Message):
        """Enter was pressed. editing: the turn to replace."""

        text: str
        editing: str | None

    @dataclass
    class Pasted(Message):
        """A big paste arrived whole."""

        n_characters: int

    def __init__(self, *, history: list[str] | None = None) -> None:
        super().__init__(
            soft_wrap=True,
            compact=False,
            highlight_cursor_line=False,
            placeholder=_IDLE,
            id="composer",
        )
        self.sent = history if history is not None else []
        self.editing: str | None = None
        self._at: int | None = None  # in the history
        self._draft = ""  # what was written before the history was walked
        self._aside = ""  # what was written before an earlier question came to be edited

    def put(self, text: str, editing: str | None = None) -> None:
        """Replace the text and go to its end; what an edit replaces comes back behind it."""
        if editing is not None and self.editing is None:
            self._aside = self.text
        self.editing = editing
        self.set_class(editing is not None, "-editing")
        self.border_title = "editing an earlier question: Esc leaves it" if editing else None
        self.load_text(text)
        self.move_cursor(self.document.end)
        self.focus()

    def show_writing(self, is_writing: bool) -> None:
        """Say in the empty box what can be done now. is_writing: an answer is being written."""
        self.placeholder = _WRITING if is_writing else _IDLE

    def leave_editing(self) -> None:
        """Back to what was being written."""
        text, self._aside = self._aside, ""
        self.put(text)

    def action_submit(self) -> None:
        """Send, unless there is nothing."""
        text = self.text.replace("\r\n", "\n").replace("\r", "\n")
        if not text.strip():
            return
        if not self.sent or self.sent[-1] != text:
            self.sent.append(text)
        self._at = None
        editing = self.editing
        self.leave_editing()
        self.post_message(self.Submitted(text, editing))

    def action_newline(self) -> None:
        """Insert a line end."""
        start, end = self.selection
        self._replace_via_keyboard("\n", start, end)

    def action_cursor_up(self, select: bool = False) -> None:
        """Up in the text; from its first line back in the history."""
        if select or not self.cursor_at_first_line:
            super().action_cursor_up(select)
        else:
            self._walk(-1)

    def action_cursor_down(self, select: bool = False) -> None:
        """Down in the text; from its last line forward in the history."""
        if select or self._at is None or not self.cursor_at_last_line:
            super().action_cursor_down(select)
        else:
            self._walk(1)

    async def _on_key(self, event: events.Key) -> None:
        """Enter sends, Tab completes a command.

        Here and not by priority bindings: those overtake letters that still wait in the queue.
        """
        if event.key in _ACTING:
            event.stop()
            event.prevent_default()
            _ACTING[event.key](self)
            return
        longer = _completed(self.text) if event.key == "tab" else None
        if longer is not None and longer != self.text:
            event.stop()
            event.prevent_default()
            self.put(longer, self.editing)
            return
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        """Whole, with line ends as they should be."""
        event.prevent_default()
        event.stop()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)
        if len(text) >= _BIG_PASTE:
            self.post_message(self.Pasted(len(text)))

    def _walk(self, step: int) -> None:
        if not self.sent:
            return
        if self._at is None:
            self._draft, self._at = self.text, len(self.sent)
        at = max(0, min(len(self.sent), self._at + step))
        self._at = at if at < len(self.sent) else None
        text = self._draft if self._at is None else self.sent[at]
        self.load_text(text)
        self.move_cursor(self.document.end)


_ACTING: dict[str, Callable[[Composer], None]] = {
    "enter": Composer.action_submit,
    "shift+enter": Composer.action_newline,
    "ctrl+j": Composer.action_newline,
}


def suggestions(text: str, width: int) -> str:
    """The commands that begin like the text, one a line; empty when it is no command."""
    if not text.startswith("/") or text.startswith("//") or "\n" in text:
        return ""
    name, space, _ = text[1:].partition(" ")
    fit = [c for c in COMMANDS if (c.name == name if space else c.name.startswith(name))]
    lines = [f"/{c.name} {c.usage}".rstrip().ljust(30) + f" {c.summary}" for c in fit]
    more = [f"… {len(lines) - _N_SUGGESTED} more: /help"] if len(lines) > _N_SUGGESTED else []
    return "\n".join(fitted(line, width) for line in [*lines[:_N_SUGGESTED], *more])


def _completed(text: str) -> str | None:
    """The text with its command completed, None when there is nothing to complete."""
    if not text.startswith("/") or " " in text or "\n" in text:
        return None
    fit = [c for c in COMMANDS if c.name.startswith(text[1:])]
    return f"/{fit[0].name}{' ' if fit[0].usage else ''}" if fit else None
