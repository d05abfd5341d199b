"""The chat on a terminal: wires the widgets to the Chat. Nothing here decodes or waits.

One clock drives all painting: it takes in what the speaker told and shows it, at most twenty
times a second.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import App, ComposeResult, SuspendNotSupported, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Static

from localspec.chat.chat import Chat
from localspec.chat.commands import COMMANDS, code_blocks, run_command
from localspec.chat.editor import edit_file, require_editor
from localspec.chat.engine_thread import Failed
from localspec.chat.model_choices import missing
from localspec.chat.thinking import split
from localspec.errors import ConfigError, LocalspecError
from localspec.tui.composer import Composer
from localspec.tui.ending import Ending
from localspec.tui.figures_bar import FiguresBar
from localspec.tui.front import ScreenFront
from localspec.tui.inspector import Inspector
from localspec.tui.painter import Painter
from localspec.tui.pickers import ConfirmScreen, size_words
from localspec.tui.status import suggestions
from localspec.tui.themes import CONTRAST
from localspec.tui.transcript import Transcript
from localspec.tui.turn_view import TurnView
from localspec.visible import visible

__all__ = ["ChatApp"]

_TICK_S = 1 / 20
_LEAVE_WITHIN_S = 3.0


class ChatApp(App[int]):
    """Shows one Chat; what commands ask for is in `front`.

    theme_name: one of the commands' THEMES. first: a question to ask at once. may_fetch: load
    even when files must be downloaded first, without asking.
    """

    TITLE = "localspec"
    CSS = """
    #title { height: 1; padding: 0 1; background: $panel; color: $text; }
    #main { height: 1fr; layout: horizontal; }
    Inspector { display: none; width: 45%; }
    .-inspecting Inspector { display: block; }
    .-narrow #main, .-normal #main { layout: vertical; }
    .-narrow Inspector, .-normal Inspector { width: 100%; height: 70%; }
    #suggestions { height: auto; max-height: 8; padding: 0 2; color: $text-muted; display: none; }
    #status { height: auto; max-height: 3; padding: 0 1; color: $text-warning; display: none; }
    .-narrow Footer { display: none; }
    ToastRack { dock: top; align: right top; margin: 1 0 0 0; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-normal"), (110, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help"),
        Binding("escape", "stop", "Stop"),  # in the footer while there is something to stop
        Binding("escape", "escape", "Back", show=False),
        Binding("ctrl+t,f2", "cycle_view", "Guesses", priority=True),
        Binding("ctrl+r", "retry", "Retry", priority=True),
        Binding("f4", "copy_answer", "Copy", priority=True),
        Binding("ctrl+o", "think", "Thinking", show=False, priority=True),
        Binding("ctrl+c", "interrupt", "Quit", show=False, priority=True, system=True),
        Binding("ctrl+q", "leave", "Quit", priority=True),
        Binding("pageup", "page(-1)", "Up", show=False, priority=True),
        Binding("pagedown", "page(1)", "Down", show=False, priority=True),
        Binding("ctrl+end", "to_end", "End", show=False, priority=True),
    ]

    def __init__(
        self,
        chat: Chat,
        *,
        theme_name: str = "dark",
        first: str | None = None,
        may_fetch: bool = False,
        history: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.chat = chat
        self.front = ScreenFront(self)
        self._first = first
        self._may_fetch = may_fetch
        self._theme_name = theme_name
        self._leaving_at = 0.0
        self.title_line = Static(id="title", markup=False)
        self.transcript = Transcript()
        self.inspector = Inspector()
        self.status = Static(id="status", markup=False)
        self.figures = FiguresBar()
        self.suggestions = Static(id="suggestions", markup=False)
        self.composer = Composer(history=history)
        self.painter = Painter(self)
        self._ending = Ending()

    def compose(self) -> ComposeResult:
        """Title, conversation and rounds, what goes on, figures, the message box, keys."""
        yield self.title_line
        with Container(id="main"):
            yield self.transcript
            yield self.inspector
        yield self.status
        yield self.figures
        yield self.suggestions
        yield self.composer
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin: load, or ask before a download."""
        self._ending.watch(self.exit)
        self.register_theme(CONTRAST)
        self.front.show_theme(self._theme_name)
        self.front.show_view(self.chat.settings.view)
        self.composer.focus()
        self.painter.start()
        self.set_interval(_TICK_S, self.painter.tick)
        if self.chat.saved.damage:
            self.front.say(self.chat.saved.damage)
        self._begin()

    def on_unmount(self) -> None:
        """Leave the process as it was."""
        self.painter.stop()
        self._ending.release()

    # Keys.

    def action_focus_next(self) -> None:
        """Tab: the message box, the last message, the rounds; in a window its next part."""
        self._focus_beyond(1)

    def action_focus_previous(self) -> None:
        """Shift+Tab."""
        self._focus_beyond(-1)

    def _focus_beyond(self, step: int) -> None:
        if len(self.screen_stack) > 1:
            self.screen.focus_next() if step > 0 else self.screen.focus_previous()
            return
        last, lane = self.transcript.last_turn, self.inspector.lane
        parts: list[Widget] = [self.composer, *([last] if last is not None else [])]
        parts += [lane] if self.chat.settings.view == "inspector" else []
        at = 1 if isinstance(self.focused, TurnView) else 0
        at = parts.index(lane) if lane.has_focus and lane in parts else at
        parts[(at + step) % len(parts)].focus()

    def action_help(self) -> None:
        """F1."""
        self.front.show_help()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what goes on can be stopped."""
        return self.can_stop if action == "stop" else True

    @property
    def can_stop(self) -> bool:
        """True while an answer is written, or a load goes on."""
        live = self.chat.live
        return not live.stopping if live is not None else self.chat.loading is not None

    def action_stop(self) -> None:
        """Stop the answer or the load."""
        if not self.chat.stop():
            self.chat.stop_loading()

    def action_escape(self) -> None:
        """Leave editing, else go to the message box."""
        composer = self.composer
        if self.chat.live is not None:  # it is being stopped already
            return
        if composer.editing:
            composer.leave_editing()
        else:
            composer.focus()

    def action_interrupt(self) -> None:
        """Ctrl+C copies a selection; else it stops, and the second one quits."""
        selected = self.screen.get_selected_text()
        focused = self.focused
        if not selected and isinstance(focused, Composer):
            selected = focused.selected_text
        if selected:
            self.front.copy(selected, "the selection")
            self.screen.clear_selection()
            return
        now = time.monotonic()
        if now - self._leaving_at < _LEAVE_WITHIN_S:
            self.front.leave()
            return
        self._leaving_at = now
        stopped = self.chat.stop()
        self.front.say("stopped; Ctrl+C again quits" if stopped else "Ctrl+C again quits")

    def action_leave(self) -> None:
        """Ctrl+Q."""
        self.front.leave()

    def action_cycle_view(self) -> None:
        """off → inline → inspector → off."""
        run_command(self.front, "/spec")

    def action_retry(self) -> None:
        """Answer again."""
        run_command(self.front, "/retry")

    def action_copy_answer(self) -> None:
        """The last answer."""
        run_command(self.front, "/copy")

    def action_think(self) -> None:
        """Open or fold the thinking of the answer that grows, or of the last one."""
        live_view = self.transcript.live_view
        if live_view is not None:
            live_view.toggle_thinking()
        else:
            views = [v for v in self.transcript.query(TurnView) if v.turn.role == "assistant"]
            if views:
                views[-1].action_think()

    def action_page(self, step: int) -> None:
        """Scroll the conversation; more of a long one at its top."""
        transcript = self.transcript
        if step < 0 and transcript.scroll_y <= 0 and transcript.show_more():
            self.painter.is_stale = True
        elif step < 0:
            transcript.scroll_page_up(animate=False)
        else:
            transcript.scroll_page_down(animate=False)

    def action_to_end(self) -> None:
        """To the end, and stay there."""
        self.transcript.follow()

    def action_edit_outside(self) -> None:
        """Write the message in $EDITOR."""
        composer = self.composer
        try:
            require_editor()
            with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
                path = Path(folder) / "message.md"
                path.write_text(composer.text, "utf-8", errors="replace")
                with self.suspend():
                    edit_file(path)
                text = path.read_text("utf-8", errors="replace").rstrip("\n")
        except (OSError, ConfigError, SuspendNotSupported) as error:
            self.front.say(f"{error}; the message is as it was")
            return
        finally:
            self.refresh()
        composer.put(text, composer.editing)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The registry, in the palette too."""
        for command in COMMANDS:
            words = f"/{command.name}"
            for choice in command.choices:
                line = f"{words} {choice}"
                yield SystemCommand(
                    line, command.summary, lambda x=line: run_command(self.front, x)
                )
            yield SystemCommand(words, command.summary, lambda x=words: run_command(self.front, x))

    # Messages of the widgets.

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        """A command, an edit, or a question."""
        if event.text.startswith("/") and not event.text.startswith("//"):
            run_command(self.front, event.text.strip())
            return
        text = event.text.removeprefix("/") if event.text.startswith("//") else event.text
        try:
            if event.editing:
                self.chat.edit(event.editing, text)
            else:
                self._tell_attachments(self.chat.send(text))
        except LocalspecError as error:
            self.front.say(str(error))
            self.composer.put(event.text, event.editing)  # nothing is lost
            return
        self.front.show_growth()

    def on_composer_pasted(self, event: Composer.Pasted) -> None:
        """Count a big paste beside the screen."""
        self._count(self.composer.text, event.n_characters)

    def on_text_area_changed(self) -> None:
        """Commands that fit what is written."""
        self.painter.typed()
        words = suggestions(self.composer.text, self.size.width - 4)
        shown = self.suggestions
        shown.display = bool(words)
        if words:
            shown.update(Content(words))

    def on_turn_view_typed(self, event: TurnView.Typed) -> None:
        """Someone writes, with the focus still on a message."""
        self.composer.focus()
        self.composer.insert(event.character)

    def on_turn_view_asked(self, event: TurnView.Asked) -> None:
        """A key on a message."""
        turn, what = event.turn, event.what
        try:
            if what == "copy":
                text = split(turn.text, opened=turn.opened).answer
                self.front.copy(text, "the message")
            elif what == "copy_code":
                blocks = code_blocks(turn.text)
                if blocks:
                    self.front.copy(blocks[-1], "the last code block")
                else:
                    self.front.say("the message has no code block")
            elif what == "edit":
                question = turn if turn.role == "user" else self.chat.conversation.turns[
                    turn.parent or turn.id]  # fmt: skip
                self.front.compose_text(question.text, question.id)
            elif what == "retry":
                self.chat.retry(turn.id)
                self.front.show_all()
            else:
                self.chat.branch(turn.id, 1 if what == "next" else -1)
                self.front.show_branch()
        except LocalspecError as error:
            self.front.say(str(error))

    # The beginning.

    def _begin(self) -> None:
        if self._may_fetch:
            self._load()
            return
        try:
            wanted = missing(self.chat.settings.target, self.chat.settings.draft)
        except LocalspecError as error:
            self.chat.failure = str(error)
            return
        if not wanted:
            self._load()
            return
        names = ", ".join(f"{c.reference} ({size_words(c.n_bytes)})" for c in wanted)
        self.push_screen(
            ConfirmScreen(f"These models are not on this machine: {names}. Fetch them now?",
                          "Fetch", "Not now"),
            lambda yes: self._load() if yes else self._declined(),
        )  # fmt: skip

    def _load(self) -> None:
        try:
            self.chat.load()
            if self._first:
                first, self._first = self._first, None
                self.chat.send(first)
        except LocalspecError as error:
            self.front.say(str(error))
        self.front.show_growth()

    def _declined(self) -> None:
        self.chat.failure = "no model was loaded: /model chooses one"

    def loaded(self) -> None:
        """The pair is there; what a person should know about it."""
        for note in self.chat.talker.notes if self.chat.talker is not None else ():
            self.front.say(note)

    def failed(self, news: Failed) -> None:
        """An answer, or a load, broke off."""
        if news.id is None and not news.is_bug:
            return  # the line above the figures says why no model is loaded
        text = news.error if not news.is_bug else f"this is a bug in localspec: {news.error}"
        self.notify(visible(text), markup=False, severity="error", timeout=15)

    def _tell_attachments(self, attachments: Iterable[Any]) -> None:
        for attachment in attachments:
            self._count(attachment.text, None, attachment.path.name)

    @work(thread=True, exit_on_error=False)
    def _count(self, text: str, n_characters: int | None, name: str = "") -> None:
        n = self.chat.count_tokens(text)
        if n is None:
            return
        room = self.chat.talker.n_ctx if self.chat.talker is not None else 0
        what = f"attached {name}" if name else f"pasted {n_characters or 0:,} characters"
        over = f": more than the context of {room:,} holds" if room and n > room else ""
        self.call_from_thread(self.front.say, f"{what}: the message has {n:,} tokens{over}"
                              if not name else f"{what}: {n:,} tokens{over}")  # fmt: skip
