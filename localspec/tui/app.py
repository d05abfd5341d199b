"""The chat on a terminal: wires the widgets to the Chat. Nothing here decodes or waits.

One clock drives all painting: it takes in what the engine replied and shows it, at most twenty
times a second.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import App, ComposeResult, SuspendNotSupported, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer

from localspec.chat.chat import Chat
from localspec.chat.commands import COMMANDS, code_blocks, run_command
from localspec.chat.desktop_tools import edit_file, require_editor
from localspec.chat.engine_protocol import Failed, LoadedPair, Reply
from localspec.chat.thinking import split
from localspec.errors import ConfigError, LocalspecError
from localspec.tui.composer import Composer, suggestions
from localspec.tui.front_end import ScreenFrontEnd
from localspec.tui.painter import Painter
from localspec.tui.process_state import ExitSignals
from localspec.tui.themes import CONTRAST
from localspec.tui.turn_view import TurnView
from localspec.tui.widgets import ChatWidgets
from localspec.visible import visible

__all__ = ["ChatApp"]

_TICK_S = 1 / 20
_LEAVE_WITHIN_S = 3.0


class ChatApp(App[int]):
    """Shows one Chat; what commands ask for is in `front_end`.

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
        Binding("ctrl+t,f2", "cycle_view", "Drafts", priority=True),
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
        self.widgets = ChatWidgets(composer=Composer(history=history))
        self.painter = Painter(self, chat, self.widgets, self._hear)
        self.front_end = ScreenFrontEnd(self, chat, self.widgets, self.painter)
        self._first = first
        self._may_fetch = may_fetch
        self._theme_name = theme_name
        self._leaving_at = 0.0
        self._signals = ExitSignals()

    def compose(self) -> ComposeResult:
        """Title, conversation and rounds, what goes on, figures, the message box, keys."""
        widgets = self.widgets
        yield widgets.title
        with Container(id="main"):
            yield widgets.transcript
            yield widgets.inspector
        yield widgets.status
        yield widgets.figures
        yield widgets.suggestions
        yield widgets.composer
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin: load, or ask before a download."""
        self._signals.start(self.exit)
        self.register_theme(CONTRAST)
        self.front_end.show_theme(self._theme_name)
        self.front_end.show_view(self.chat.settings.view)
        self.widgets.composer.focus()
        self.painter.start()
        self.set_interval(_TICK_S, self.painter.tick)
        if self.chat.saved.damage:
            self.front_end.say(self.chat.saved.damage)
        self._begin()

    def on_unmount(self) -> None:
        """Leave the process as it was."""
        self.painter.stop()
        self._signals.stop()

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
        last, lane = self.widgets.transcript.last_turn, self.widgets.inspector.lane
        parts: list[Widget] = [self.widgets.composer, *([last] if last is not None else [])]
        parts += [lane] if self.chat.settings.view == "inspector" else []
        at = 1 if isinstance(self.focused, TurnView) else 0
        at = parts.index(lane) if lane.has_focus and lane in parts else at
        parts[(at + step) % len(parts)].focus()

    def action_help(self) -> None:
        """F1."""
        self.front_end.show_help()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what goes on can be stopped."""
        return self.chat.can_stop if action == "stop" else True

    def action_stop(self) -> None:
        """Stop the answer or the load."""
        self.chat.stop()

    def action_escape(self) -> None:
        """Leave editing, else go to the message box."""
        composer = self.widgets.composer
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
            self.front_end.copy(selected, "the selection")
            self.screen.clear_selection()
            return
        now = time.monotonic()
        if now - self._leaving_at < _LEAVE_WITHIN_S:
            self.front_end.leave()
            return
        self._leaving_at = now
        stopped = self.chat.stop()
        self.front_end.say("stopped; Ctrl+C again quits" if stopped else "Ctrl+C again quits")

    def action_leave(self) -> None:
        """Ctrl+Q."""
        self.front_end.leave()

    def action_cycle_view(self) -> None:
        """off → inline → inspector → off."""
        run_command(self.front_end, "/spec")

    def action_retry(self) -> None:
        """Answer again."""
        run_command(self.front_end, "/retry")

    def action_copy_answer(self) -> None:
        """The last answer."""
        run_command(self.front_end, "/copy")

    def action_think(self) -> None:
        """Open or fold the thinking of the answer that grows, or of the last one."""
        if (live_view := self.widgets.transcript.live_view) is not None:
            live_view.toggle_thinking()
        else:
            views = reversed(self.widgets.transcript.query(TurnView))
            answer = next((view for view in views if view.turn.role == "assistant"), None)
            if answer is not None:
                answer.action_think()

    def action_page(self, step: int) -> None:
        """Scroll the conversation; more of a long one at its top."""
        transcript = self.widgets.transcript
        if step < 0 and transcript.scroll_y <= 0 and transcript.show_more():
            self.painter.is_stale = True
        elif step < 0:
            transcript.scroll_page_up(animate=False)
        else:
            transcript.scroll_page_down(animate=False)

    def action_to_end(self) -> None:
        """To the end, and stay there."""
        self.widgets.transcript.follow()

    def action_edit_outside(self) -> None:
        """Write the message in $EDITOR."""
        composer = self.widgets.composer
        try:
            require_editor()
            with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
                path = Path(folder) / "message.md"
                path.write_text(composer.text, "utf-8", errors="replace")
                with self.suspend():
                    edit_file(path)
                text = path.read_text("utf-8", errors="replace").rstrip("\n")
        except (OSError, ConfigError, SuspendNotSupported) as error:
            self.front_end.say(f"{error}; the message is as it was")
            return
        finally:
            self.refresh()
        composer.put(text, composer.editing)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The registry, in the palette too."""
        for command in COMMANDS:
            for choice in (*command.choices, ""):
                line = f"/{command.name} {choice}".rstrip()
                run = partial(run_command, self.front_end, line)
                yield SystemCommand(line, command.summary, run)

    # Messages of the widgets.

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        """A command, an edit, or a question."""
        if event.text.startswith("/") and not event.text.startswith("//"):
            run_command(self.front_end, event.text.strip())
            return
        text = event.text.removeprefix("/") if event.text.startswith("//") else event.text
        try:
            if event.editing:
                self.chat.edit(event.editing, text)
            else:
                for attachment in self.chat.send(text):
                    self._tell_tokens(attachment.text, f"attached {attachment.path.name}")
        except LocalspecError as error:
            self.front_end.say(str(error))
            self.widgets.composer.put(event.text, event.editing)  # nothing is lost
            return
        self.front_end.show_growth()

    def on_composer_pasted(self, event: Composer.Pasted) -> None:
        """Count a big paste beside the screen."""
        what = f"pasted {event.n_characters:,} characters"
        self._tell_tokens(self.widgets.composer.text, what, "the message has ")

    def on_text_area_changed(self) -> None:
        """Commands that fit what is written."""
        self.painter.typed()
        words = suggestions(self.widgets.composer.text, self.size.width - 4)
        shown = self.widgets.suggestions
        shown.display = bool(words)
        if words:
            shown.update(Content(words))

    def on_turn_view_typed(self, event: TurnView.Typed) -> None:
        """Someone writes, with the focus still on a message."""
        self.widgets.composer.focus()
        self.widgets.composer.insert(event.character)

    def on_turn_view_asked(self, event: TurnView.Asked) -> None:
        """A key on a message."""
        turn, what = event.turn, event.what
        try:
            if what == "copy":
                text = split(turn.text, opened=turn.opened).answer
                self.front_end.copy(text, "the message")
            elif what == "copy_code":
                blocks = code_blocks(turn.text)
                if blocks:
                    self.front_end.copy(blocks[-1], "the last code block")
                else:
                    self.front_end.say("the message has no code block")
            elif what == "edit":
                question = turn if turn.role == "user" else self.chat.conversation.turns[
                    turn.parent or turn.id]  # fmt: skip
                self.front_end.compose_text(question.text, question.id)
            elif what == "retry":
                self.chat.retry(turn.id)
                self.front_end.show_all()
            else:
                self.chat.branch(turn.id, 1 if what == "next" else -1)
                self.front_end.show_branch()
        except LocalspecError as error:
            self.front_end.say(str(error))

    # Loading.

    def _begin(self) -> None:
        settings = self.chat.settings
        try:
            if self._may_fetch:
                self._load()
            else:
                self.front_end.confirm_download(
                    settings.target, settings.draft, self._load, self._declined
                )
        except LocalspecError as error:
            self.chat.failure = str(error)

    def _load(self) -> None:
        try:
            self.chat.load()
            if self._first:
                first, self._first = self._first, None
                self.chat.send(first)
        except LocalspecError as error:
            self.front_end.say(str(error))
        self.front_end.show_growth()

    def _declined(self) -> None:
        self.chat.failure = "no model was loaded: /model chooses one"

    def _hear(self, reply: Reply) -> None:
        """Say what a person should know of it."""
        if isinstance(reply, LoadedPair):
            for note in reply.notes:
                self.front_end.say(note)
        elif isinstance(reply, Failed) and (reply.id is not None or reply.is_bug):
            # a load that failed otherwise: the status line says why
            text = f"this is a bug in localspec: {reply.error}" if reply.is_bug else reply.error
            self.notify(visible(text), markup=False, severity="error", timeout=15)

    # Counting, beside the screen.

    @work(thread=True, exit_on_error=False)
    def _tell_tokens(self, text: str, what: str, counted: str = "") -> None:
        n = self.chat.count_tokens(text)
        pair = self.chat.pair
        if n is None or pair is None:
            return
        over = f", more than the context of {pair.n_ctx:,} holds" if n > pair.n_ctx else ""
        self.call_from_thread(self.front_end.say, f"{what}: {counted}{n:,} tokens{over}")
