"""What a command asks of the screen (see commands.FrontEnd)."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App

from localspec.chat.chat import Chat
from localspec.chat.commands import run_command
from localspec.chat.desktop_tools import copy_to_desktop
from localspec.chat.model_choices import missing
from localspec.errors import LocalspecError
from localspec.tui.help import HelpScreen
from localspec.tui.painter import Painter
from localspec.tui.pickers import ChatPicker, ConfirmScreen, ModelPicker, size_words
from localspec.tui.themes import TEXTUAL_NAMES
from localspec.tui.widgets import ChatWidgets
from localspec.visible import visible

__all__ = ["ScreenFrontEnd"]


class ScreenFrontEnd:
    """The app as commands see it."""

    def __init__(self, app: App[int], chat: Chat, widgets: ChatWidgets, painter: Painter) -> None:
        self.chat = chat
        self._app = app
        self._widgets = widgets
        self._painter = painter

    def say(self, text: str) -> None:
        """A passing word; literal."""
        self._app.notify(visible(text), markup=False, timeout=max(4.0, len(text) / 20))

    def show_help(self) -> None:
        """All keys and commands."""
        self._app.push_screen(HelpScreen())

    def choose_model(self, role: str) -> None:
        """A window; what is chosen runs as a command."""
        if role == "draft" and self.chat.pair is None:
            self.say("no target is loaded: choose one with /model first")
            return

        def chosen(reference: str | None) -> None:
            if reference:
                self._load_chosen(role, reference)

        self._app.push_screen(ModelPicker(self.chat, role), chosen)

    def choose_chat(self) -> None:
        """A window of the saved chats."""

        def chosen(chat_id: str | None) -> None:
            if chat_id:
                run_command(self, f"/load {chat_id}")

        self._app.push_screen(ChatPicker(), chosen)

    def compose_text(self, text: str, editing: str | None) -> None:
        """Put text into the message box."""
        composer = self._widgets.composer
        composer.put(text if editing else composer.text + text, editing)

    def copy(self, text: str, what: str) -> None:
        """To the terminal's clipboard, and the desktop's where there is a tool."""
        self._app.copy_to_clipboard(text)
        self._app.run_worker(
            lambda: copy_to_desktop(text), thread=True, exit_on_error=False, name="copy"
        )
        self.say(f"copied {what} ({len(text):,} characters)")

    def show_view(self, view: str) -> None:
        """off, inline or inspector."""
        self._app.screen_stack[0].set_class(view == "inspector", "-inspecting")
        self.show_branch()
        if view != "inspector" and self._widgets.inspector.lane.has_focus:
            self._widgets.composer.focus()

    def show_theme(self, name: str) -> None:
        """dark, light, contrast, ansi."""
        self._app.theme = TEXTUAL_NAMES[name]

    def show_all(self) -> None:
        """The conversation is another one."""
        composer = self._widgets.composer
        if composer.editing and composer.editing not in self.chat.conversation.turns:
            composer.leave_editing()
        self.show_growth()
        self._painter.show_rounds()

    def show_branch(self) -> None:
        """Another branch is read; the view stays at the message where it begins."""
        self._painter.is_stale = True
        self._painter.show_rounds()

    def show_growth(self) -> None:
        """It has grown."""
        self._painter.is_stale = True
        self._widgets.transcript.follow()

    def leave(self) -> None:
        """Quit; the command closes the chat behind the restored terminal."""
        self._app.exit(0)

    def confirm_download(
        self,
        target: str,
        draft: str | None,
        load: Callable[[], None],
        decline: Callable[[], None] | None = None,
    ) -> None:
        """Call load at once when the files are here; else ask, and call one of the two.

        draft: a reference, `auto`, or None. Raises ModelNotFoundError.
        """
        wanted = missing(target, draft)
        if not wanted:
            load()
            return
        names = ", ".join(f"{c.reference} ({size_words(c.n_bytes)})" for c in wanted)

        def answered(yes: bool | None) -> None:
            if yes:
                load()
            elif decline is not None:
                decline()

        question = f"Not on this machine: {names}. Download now?"
        self._app.push_screen(ConfirmScreen(question, "Download", "Not now"), answered)

    def _load_chosen(self, role: str, reference: str) -> None:
        line = f"/{'model' if role == 'target' else 'draft'} {reference}"
        if reference == "none":
            run_command(self, line)
            return
        target = reference if role == "target" else self.chat.settings.target
        try:
            self.confirm_download(
                target,
                "auto" if role == "target" else reference,
                lambda: run_command(self, line),
            )
        except LocalspecError as error:
            self.say(str(error))
