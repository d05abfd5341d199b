"""Windows that ask: a model, a saved chat, yes or no. All text in them is literal."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.chat.chat import Chat
from localspec.chat.model_choices import Candidate, drafts, targets
from localspec.chat.saved import SavedTitle, list_chats
from localspec.visible import visible

__all__ = ["ChatPicker", "ConfirmScreen", "ModelPicker", "size_words"]


class _Picker(ModalScreen[str | None]):
    """A list with a line above it that filters, or is itself the answer."""

    DEFAULT_CSS = """
    _Picker { align: center middle; }
    _Picker > Vertical { width: 90; max-width: 100%; height: auto; max-height: 90%;
                         border: round $primary; background: $surface; padding: 0 1; }
    _Picker OptionList { height: auto; max-height: 20; border: none; background: $surface; }
    _Picker Static { height: auto; color: $text-muted; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close"),
        Binding("down", "into_list", "List", show=False),
    ]

    heading = ""
    hint = ""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[tuple[str, Content, bool]] = []  # answer, shown, may be taken

    def compose(self) -> ComposeResult:
        """The line, the list, a hint."""
        with Vertical() as window:
            window.border_title = Content(self.heading)
            yield Input(placeholder=self.hint, compact=True)
            yield OptionList(markup=False)
            yield Static("looking …", markup=False)

    def fill(self, rows: list[tuple[str, Content, bool]], hint: str) -> None:
        """Show these."""
        self._rows = rows
        self.query_one(Static).update(Content(hint))
        self._filter("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        self._filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The first row that fits, else what was typed."""
        words = event.value.strip()
        options = self.query_one(OptionList)
        free = [option for option in options.options if not option.disabled]
        if words and not free:
            self.dismiss(words)
        elif free:
            self.dismiss(free[0].id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """That one."""
        self.dismiss(event.option_id)

    def action_into_list(self) -> None:
        """From the line to the list."""
        self.query_one(OptionList).focus()

    def _filter(self, words: str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        wanted = words.lower().split()
        options.add_options(
            Option(shown, id=answer, disabled=not allowed)
            for answer, shown, allowed in self._rows
            if all(word in shown.plain.lower() for word in wanted)
        )
        if options.option_count:
            options.highlighted = 0


class ModelPicker(_Picker):
    """Pairs and files for the target, or files that may draft for it and why others may not."""

    def __init__(self, chat: Chat, role: str) -> None:
        super().__init__()
        self.heading = f"choose a {role}"
        self.hint = "filter, or a path, or user/repo:quant"
        self._role = role
        self._target = chat.pair.target_path if chat.pair is not None else None

    def on_mount(self) -> None:
        """Headers are read beside the screen."""
        self._look()

    @work(thread=True, exit_on_error=False)
    def _look(self) -> None:
        found: list[Candidate] = []
        if self._role == "target":
            found = targets()
        elif self._target is not None:
            found = [
                Candidate("auto", "the draft that belongs to this target"),
                Candidate("none", "no draft model; draft tokens are copies of the text only"),
                *drafts(self._target),
            ]
        self.app.call_from_thread(self._show, found)

    def _show(self, found: list[Candidate]) -> None:
        if self.is_attached:
            rows = [(c.reference, _candidate_row(c), c.refused is None) for c in found]
            self.fill(rows, "Enter takes the first; Down goes into the list")


class ChatPicker(_Picker):
    """The saved chats, the last one first."""

    heading = "open a saved chat"
    hint = "filter"

    def on_mount(self) -> None:
        """The list is read at once: it is short."""
        rows = [(saved.id, _chat_row(saved), True) for saved in list_chats()[:500]]
        self.fill(rows, f"{len(rows)} chats" if rows else "no chat is saved yet")


class ConfirmScreen(ModalScreen[bool]):
    """A question with two answers; Enter says yes, Esc no."""

    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; }
    ConfirmScreen > Vertical { width: 64; max-width: 100%; height: auto; border: round $primary;
                               background: $surface; padding: 1 2; }
    ConfirmScreen Static { height: auto; margin-bottom: 1; }
    ConfirmScreen Horizontal { height: auto; }
    ConfirmScreen Button { margin-right: 2; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "dismiss(False)", "No"),
        Binding("y", "dismiss(True)", "Yes"),
    ]

    def __init__(self, words: str, yes: str, no: str) -> None:
        super().__init__()
        self._words, self._yes, self._no = words, yes, no

    def compose(self) -> ComposeResult:
        """The question and two buttons."""
        with Vertical():
            yield Static(Content(visible(self._words)), markup=False)
            with Horizontal():
                yield Button(Content(self._yes), variant="primary", id="yes", compact=True)
                yield Button(Content(self._no), id="no", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Whichever."""
        self.dismiss(event.button.id == "yes")


def size_words(n_bytes: int | None) -> str:
    """A size for people."""
    if n_bytes is None:
        return "size unknown"
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.0f} MB"


def _candidate_row(candidate: Candidate) -> Content:
    state = f"to download: {size_words(candidate.n_bytes)}" if candidate.n_bytes != 0 else ""
    if candidate.refused:
        state = f"does not fit: {candidate.refused}"
    name = candidate.reference.rpartition("/")[2]
    return Content.assemble(
        (visible(name), "bold"),
        (f"\n  {visible(candidate.note)}", "dim"),
        (f"\n  {visible(state)}" if state else "", "$text-warning"),
    )


def _chat_row(saved: SavedTitle) -> Content:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(saved.written))
    return Content.assemble(
        (visible(saved.title) or "(empty)", ""), (f"\n  {when} · {saved.id}", "dim")
    )
