"""`localspec chat`: the chat on a terminal, or line by line where there is no screen."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import chosen_options, shared_options
from localspec.errors import InvalidOptionError, SavedChatError

if TYPE_CHECKING:
    from localspec.chat.chat import Chat

__all__ = ["chat"]

_SWITCH_S = 0.0005


@click.command()
@click.argument("prompt", required=False)
@shared_options
@click.option("--system", help="System prompt.")
@click.option("--view", type=click.Choice(["off", "inline", "inspector"]), default="inline",
              show_default=True, help="How draft tokens are shown.")  # fmt: skip
@click.option("--theme", type=click.Choice(["dark", "light", "contrast", "ansi"]), default="dark",
              show_default=True)  # fmt: skip
@click.option("--continue", "go_on", is_flag=True, help="Continue the last chat.")
@click.option("--resume", metavar="ID", help="Continue this chat (/load lists them).")
@click.option("--plain", is_flag=True, help="Line by line, without a screen.")
@click.option("--yes", "-y", is_flag=True, help="Fetch missing models without asking.")
def chat(prompt: str | None, **given: Any) -> None:
    """Chat with a model and see its draft tokens. PROMPT is asked at once."""
    from localspec.chat.chat import Chat
    from localspec.chat.engine_thread import EngineThread, open_session
    from localspec.chat.saved import SavedChat, list_chats
    from localspec.chat.settings import ChatSettings

    loading, answering = chosen_options(given)
    settings = ChatSettings(
        target=given["target"],
        draft=None if given["draft"] == "none" else given["draft"],
        loading=loading,
        answering=answering,
        view=given["view"],
    )
    if given["go_on"] and given["resume"]:
        raise InvalidOptionError("--continue and --resume exclude each other")
    saved = SavedChat()
    if given["resume"]:
        saved = SavedChat.open(given["resume"])
    elif given["go_on"]:
        chats = list_chats()
        if not chats:
            raise SavedChatError("no chat is saved yet: start one without --continue")
        saved = SavedChat.open(chats[0].id)
    if given["system"] is not None:
        saved.set_system(given["system"])

    is_screen = sys.stdin.isatty() and sys.stdout.isatty()
    if is_screen and not sys.stderr.isatty():  # Textual draws there
        click.echo(
            "localspec: note: stderr is not a terminal, and the screen is drawn there: the chat "
            "goes line by line"
        )
        is_screen = False
    plain = given["plain"] or not is_screen or os.environ.get("TERM", "") in ("", "dumb")
    chat = Chat(EngineThread(open_session), settings, saved)
    if plain:
        from localspec.cli.line_chat import LineChat

        sys.exit(LineChat(chat).run(prompt, may_fetch=given["yes"] or not is_screen))
    _log_to_file()
    sys.exit(_on_screen(chat, prompt, given))


def _on_screen(chat: Chat, prompt: str | None, given: dict[str, Any]) -> int:
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from localspec.tui.app import ChatApp

    # The thread that decodes gets the interpreter back sooner while the screen is drawn.
    sys.setswitchinterval(_SWITCH_S)
    disable_progress_bars()  # they would draw over the screen
    history = [turn.text for turn in chat.conversation if turn.role == "user"]
    app = ChatApp(
        chat, theme_name=given["theme"], first=prompt, may_fetch=given["yes"], history=history
    )
    code = app.run()
    if chat.saved.broken:
        click.echo(f"localspec: {chat.saved.broken}", err=True)
    elif len(chat.conversation):
        resume = f"localspec chat --resume {chat.saved.id}"
        click.echo(f"localspec: saved; continue with `{resume}`", err=True)
    if not chat.close():
        # A native call that does not end; what was said is on the disk already.
        sys.stderr.flush()
        os._exit(code or app.return_code or 0)
    return code or app.return_code or 0


def _log_to_file() -> None:
    """The engine's log, and ours, to a file: the terminal belongs to the screen."""
    import platformdirs

    folder = Path(platformdirs.user_log_dir("localspec", appauthor=False))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler: logging.Handler = logging.FileHandler(
            folder / "chat.log", mode="w", encoding="utf-8", errors="replace"
        )
    except OSError:
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logger = logging.getLogger("localspec")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
