"""What a command asks of the screen (see commands.Front)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localspec.chat.chat import Chat
from localspec.chat.commands import run_command
from localspec.chat.model_choices import missing
from localspec.errors import LocalspecError
from localspec.tui.clipboard import copy_by_tool
from localspec.tui.help import HelpScreen
from localspec.tui.pickers import ChatPicker, ConfirmScreen, ModelPicker, size_words
from localspec.tui.themes import TEXTUAL_NAMES
from localspec.visible import visible

if TYPE_CHECKING:
    from localspec.tui.app import ChatApp

__all__ = ["ScreenFront"]


class ScreenFront:
    """The app as commands see it."""

    def __init__(self, app: ChatApp) -> None:
        self.chat: Chat = app.chat
        self._app = app

    def say(self, text: str) -> None:
        """A passing word; literal."""
        self._app.notify(visible(text), markup=False, timeout=max(4.0, len(text) / 20))

    def show_help(self) -> None:
        """All keys and commands."""
        self._app.push_screen(HelpScreen())

    def choose_model(self, role: str) -> None:
        """A window; what is chosen runs as a command."""
        if role == "draft" and self.chat.talker is None:
            self.say("no target is loaded: choose one with /model first")
            return
        command = "model" if role == "target" else "draft"

        def chosen(reference: str | None) -> None:
            if reference:
                self._load_chosen(command, reference)

        self._app.push_screen(ModelPicker(self.chat, role), chosen)

    def choose_chat(self) -> None:
        """A window of the saved chats."""

        def chosen(chat_id: str | None) -> None:
            if chat_id:
                run_command(self, f"/load {chat_id}")

        self._app.push_screen(ChatPicker(), chosen)

    def compose_text(self, text: str, editing: str | None) -> None:
        """Put text into the message box."""
        composer = self._app.composer
        composer.put(text if editing else composer.text + text, editing)

    def copy(self, text: str, what: str) -> None:
        """To the terminal's clipboard, and the platform's where there is a tool."""
        self._app.copy_to_clipboard(text)
        self._app.run_worker(
            lambda: copy_by_tool(text), thread=True, exit_on_error=False, name="copy"
        )
        self.say(f"copied {what} ({len(text):,} characters)")

    def show_view(self, view: str) -> None:
        """off, inline or inspector."""
        app = self._app
        app.screen_stack[0].set_class(view == "inspector", "-inspecting")
        app.painter.is_stale = True
        if view == "inspector":
            app.painter.show_rounds()
        elif app.inspector.lane.has_focus:
            app.composer.focus()

    def show_theme(self, name: str) -> None:
        """dark, light, contrast, ansi."""
        self._app.theme = TEXTUAL_NAMES[name]

    def show_all(self) -> None:
        """The conversation is another one."""
        composer = self._app.composer
        if composer.editing and composer.editing not in self.chat.conversation.turns:
            composer.leave_editing()
        self.show_growth()
        self._app.painter.show_rounds()

    def show_branch(self) -> None:
        """Another branch is read; the view stays at the message where it begins."""
        self._app.painter.is_stale = True
        self._app.painter.show_rounds()

    def show_growth(self) -> None:
        """It has grown."""
        self._app.painter.is_stale = True
        self._app.transcript.follow()

    def leave(self) -> None:
        """Quit; the command closes the chat behind the restored terminal."""
        self._app.exit(0)

    def _load_chosen(self, command: str, reference: str) -> None:
        line = f"/{command} {reference}"
        try:
            wanted = missing(reference, "auto" if command == "model" else None)
        except LocalspecError as error:
            if reference not in ("auto", "none"):
                self.say(str(error))
                return
            wanted = []
        if not wanted:
            run_command(self, line)
            return
        names = ", ".join(f"{c.reference} ({size_words(c.n_bytes)})" for c in wanted)

        def answered(yes: bool | None) -> None:
            if yes:
                run_command(self, line)

        self._app.push_screen(ConfirmScreen(f"Fetch {names}?", "Fetch", "Not now"), answered)
