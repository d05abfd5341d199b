"""One message: the person's as written, the model's as Markdown or with its draft tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from localspec.chat.conversation import Conversation, Turn, new_notes
from localspec.chat.thinking import split
from localspec.session.marks import Mark, mark_all
from localspec.tui.markdown_text import markdown_texts
from localspec.tui.themes import MARKS
from localspec.visible import visible

__all__ = ["TurnView", "marked_content", "model_name", "thinking_title"]

_PART = 1_200  # characters of marked text from which another widget begins
_FOLD_OVER = 4_000  # characters of a question of which the beginning alone is shown


class TurnView(Vertical, can_focus=True):
    """A turn of the conversation. Keys work on the focused one."""

    DEFAULT_CSS = """
    TurnView { height: auto; padding: 0 1; margin-bottom: 1; border-left: outer $background; }
    TurnView:focus { border-left: outer $primary; background: $boost; }
    TurnView.-user { border-left: outer $secondary; }
    TurnView.-user:focus { border-left: outer $primary; }
    TurnView .head { color: $text-muted; height: auto; }
    TurnView.-user .body { text-style: bold; }
    TurnView .thinking { color: $text-muted; height: auto; }
    TurnView .notes { color: $text-warning; height: auto; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c,y", "copy", "Copy"),
        Binding("b", "copy_code", "Copy code"),
        Binding("e", "edit", "Edit"),
        Binding("r", "retry", "Retry"),
        Binding("t", "tokens", "Drafts"),
        Binding("o", "think", "Thinking"),
        Binding("left", "branch(-1)", "Branch", show=False),
        Binding("right", "branch(1)", "Branch"),
    ]

    @dataclass
    class Asked(Message):
        """A key on a turn: copy, copy_code, edit, retry, previous, next."""

        turn: Turn
        what: str

    @dataclass
    class Typed(Message):
        """A character that is no key of a message: it belongs to the message box."""

        character: str

    def __init__(self, turn: Turn, conversation: Conversation, *, marked: bool = False) -> None:
        super().__init__(classes=f"-{turn.role}")
        self.turn = turn
        self.marked = marked and bool(turn.rounds)
        self.place = conversation.siblings(turn.id)
        said: set[str] = set()
        before = conversation.path(turn.parent) if turn.parent is not None else []
        new_notes((note for earlier in before for note in earlier.notes), said)
        self.notes = new_notes(turn.notes, said)
        self._thinking_open = False

    def compose(self) -> ComposeResult:
        """The head, the thinking, the body, the notes."""
        yield Static(self._head(), classes="head", markup=False)
        if self.turn.role == "user":
            yield Static(Content(self._question()), classes="body", markup=False)
            return
        parts = split(self.turn.text, opened=self.turn.opened)
        if parts.thinking is not None:
            yield Static(self._thinking(), classes="thinking", markup=False)
        marks = _answer_marks(self.turn, parts.answer) if self.marked else None
        if marks is not None:
            for content in _marked_parts(marks, plain=self.app.no_color):
                yield Static(content, classes="body", markup=False)
        else:
            yield from markdown_texts(parts.answer)
        if notes := self._ending():
            yield Static(Content(notes), classes="notes", markup=False)

    def action_copy(self) -> None:
        """Copy the message."""
        self.post_message(self.Asked(self.turn, "copy"))

    def action_copy_code(self) -> None:
        """Copy its last code block."""
        self.post_message(self.Asked(self.turn, "copy_code"))

    def action_edit(self) -> None:
        """Ask it differently."""
        self.post_message(self.Asked(self.turn, "edit"))

    def action_retry(self) -> None:
        """Answer once more."""
        self.post_message(self.Asked(self.turn, "retry"))

    def action_branch(self, step: int) -> None:
        """The neighbouring branch."""
        self.post_message(self.Asked(self.turn, "next" if step > 0 else "previous"))

    async def action_tokens(self) -> None:
        """Show where every token came from, or the Markdown again."""
        if self.turn.rounds:
            self.marked = not self.marked
            await self.recompose()

    def action_think(self) -> None:
        """Open or fold the thinking."""
        self._thinking_open = not self._thinking_open
        for shown in self.query(".thinking").results(Static):
            shown.update(self._thinking())

    def on_key(self, event: events.Key) -> None:
        """Text that is typed here goes where text goes."""
        if event.character is not None and event.is_printable and event.key not in _KEYS:
            event.stop()
            self.post_message(self.Typed(event.character))

    def on_click(self, event: events.Click) -> None:
        """A click on the folded thinking opens it."""
        if event.widget is not None and event.widget.has_class("thinking"):
            self.action_think()

    def _head(self) -> Content:
        at, ids = self.place
        who = "you" if self.turn.role == "user" else model_name(self.turn)
        words = [who]
        if len(ids) > 1:
            words.append(f"‹ {at + 1} of {len(ids)} ›")
        words += _figures(self.turn)
        return Content(visible(" · ".join(words)))

    def _question(self) -> str:
        text = visible(self.turn.text)
        if len(text) <= _FOLD_OVER:
            return text
        return f"{text[:_FOLD_OVER]}\n… and {len(text) - _FOLD_OVER:,} more characters"

    def _thinking(self) -> Content:
        parts = split(self.turn.text, opened=self.turn.opened)
        assert parts.thinking is not None
        title = thinking_title(self.turn.thinking_s, is_open=False, folded=not self._thinking_open)
        return Content(f"{title}\n{visible(parts.thinking)}" if self._thinking_open else title)

    def _ending(self) -> str:
        why = {
            "cancelled": "stopped; /continue goes on",
            "interrupted": "cut off before its end; /continue goes on",
            "length": "cut at the token limit; /continue goes on",
            "context": "the context is full: /new starts again, --ctx-size sets a larger one",
        }.get(self.turn.reason or "")
        return visible("\n".join([*self.notes, *([why] if why else [])]))


_KEYS = frozenset("cyberto")  # those of BINDINGS


def marked_content(marks: Iterable[Mark], *, rejected: bool = True, plain: bool = False) -> Content:
    """Marks as styled literal text. plain: brackets around rejected tokens, for no colours."""
    pieces: list[tuple[str, str]] = []
    for mark in marks:
        if mark.kind != "rejected":
            pieces.append((visible(mark.text), MARKS[mark.kind]))
        elif rejected:
            text = visible(mark.text).replace("\n", "⏎")
            pieces.append((f"[-{text}-]" if plain else text, MARKS["rejected"]))
    return Content.assemble(*pieces)


def model_name(turn: Turn) -> str:
    """Which model answered, for people."""
    return turn.model.removesuffix(".gguf") or "model"


def thinking_title(seconds: float | None, *, is_open: bool, folded: bool) -> str:
    """The line that stands for the thinking."""
    arrow = "▸" if folded else "▾"
    took = f" for {seconds:.0f} s" if seconds is not None else ""
    return f"{arrow} thinking{took} …" if is_open else f"{arrow} thought{took} (o opens)"


def _answer_marks(turn: Turn, answer: str) -> list[Mark] | None:
    """The marks of the answer behind its thinking; None where not every round is known."""
    marks = mark_all(turn.rounds)
    if "".join(mark.text for mark in marks if mark.kind != "rejected") != turn.text:
        return None  # it was continued when the program died: the rest has no rounds
    n = len(turn.text) - len(answer)
    while marks and n > 0:
        mark = marks.pop(0)
        if mark.kind == "rejected":
            continue
        if len(mark.text) > n:
            marks.insert(0, Mark(mark.text[n:], mark.kind))
        n -= len(mark.text)
    return marks


def _marked_parts(marks: list[Mark], *, plain: bool) -> list[Content]:
    """Parts that end with a line, so that no widget is too long to be drawn at once."""
    parts: list[Content] = []
    begun: list[Mark] = []
    for mark in marks:
        before, line_end, after = mark.text.rpartition("\n")
        is_long = sum(len(m.text) for m in begun) > _PART
        if is_long and line_end and mark.kind != "rejected":
            parts.append(marked_content([*begun, Mark(before, mark.kind)], plain=plain))
            begun = [Mark(after, mark.kind)] if after else []
        else:
            begun.append(mark)
    return [*parts, marked_content(begun, plain=plain)]


def _figures(turn: Turn) -> list[str]:
    timings = turn.timings
    if not timings.get("predicted_n"):
        return []
    words = [
        f"{timings['predicted_n']:,} tokens",
        f"{timings.get('predicted_per_second', 0.0):.1f} tok/s",
    ]
    accepted = timings.get("draft_n_accepted", 0)
    verified = accepted + timings.get("draft_n_rejected", 0)
    if verified:
        speed_up = timings.get("speed_up_estimated")  # of chats saved before December 2026
        if (plain_ms := timings.get("plain_ms")) and (took_ms := timings.get("predicted_ms")):
            speed_up = plain_ms / took_ms
        if speed_up:
            words.append(f"{speed_up:.2f} × plain")
        words.append(f"accepted {accepted} of {verified}")
    elif timings.get("drafter") == "none":
        words.append("plain decoding")
    return words
