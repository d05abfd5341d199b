"""The commands of the chat, one registry for slash commands, the palette, and the line chat."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, get_args, get_type_hints

from localspec.chat.attachments import attach
from localspec.chat.chat import Chat
from localspec.chat.export import FORMATS, export
from localspec.chat.saved import SavedChat
from localspec.chat.settings import VIEWS
from localspec.chat.thinking import split
from localspec.errors import InvalidOptionError, LocalspecError
from localspec.session.options import DRAFTERS, Options

__all__ = ["COMMANDS", "THEMES", "Command", "FrontEnd", "code_blocks", "find", "run_command"]

_FENCE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<body>.*?)^(?P=fence)[`~]*\s*$", re.MULTILINE | re.DOTALL
)
THEMES = ("dark", "light", "contrast", "ansi")


class FrontEnd(Protocol):
    """What a screen, or a line printer, does for a command."""

    chat: Chat

    def say(self, text: str) -> None:
        """Tell something in passing; literal text."""

    def show_help(self) -> None:
        """All commands and keys."""

    def choose_model(self, role: str) -> None:
        """Let the person pick a target or a draft."""

    def choose_chat(self) -> None:
        """Let the person pick a saved chat."""

    def compose_text(self, text: str, editing: str | None) -> None:
        """Put text where the person writes; editing: the turn that it will replace."""

    def copy(self, text: str, what: str) -> None:
        """Put text into the clipboard, and say so."""

    def show_view(self, view: str) -> None:
        """How draft tokens are shown: one of VIEWS."""

    def show_theme(self, name: str) -> None:
        """One of THEMES."""

    def show_all(self) -> None:
        """The conversation changed as a whole."""

    def show_growth(self) -> None:
        """A question was added, or an answer began."""

    def leave(self) -> None:
        """Quit."""


@dataclass(frozen=True, slots=True)
class Command:
    """name without the slash; usage: what follows it; choices: for completion."""

    name: str
    usage: str
    summary: str
    run: Callable[[FrontEnd, str], None]
    choices: tuple[str, ...] = ()


def run_command(front: FrontEnd, line: str) -> None:
    """Run `/name argument`. Errors are said, not raised."""
    name, _, argument = line.removeprefix("/").partition(" ")
    try:
        find(name).run(front, argument.strip())
    except LocalspecError as error:
        front.say(str(error))


def find(name: str) -> Command:
    """The command of that name, or the one that begins so. Raises InvalidOptionError."""
    by_name = {command.name: command for command in COMMANDS}
    if name in by_name:
        return by_name[name]
    begun = [command for command in COMMANDS if name and command.name.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    near = difflib.get_close_matches(name, by_name, 3) or [command.name for command in begun]
    hint = "did you mean " + ", ".join(f"/{n}" for n in near) + "?" if near else "see /help"
    raise InvalidOptionError(f"there is no command /{name}: {hint}")


def _help(front: FrontEnd, _: str) -> None:
    front.show_help()


def _model(front: FrontEnd, argument: str) -> None:
    if not argument:
        front.choose_model("target")
        return
    target, draft = _two_references(argument)
    settings = replace(front.chat.settings, target=target, draft=_draft_reference(draft))
    front.chat.load(settings)
    front.show_growth()


def _draft(front: FrontEnd, argument: str) -> None:
    if not argument:
        front.choose_model("draft")
        return
    front.chat.load(replace(front.chat.settings, draft=_draft_reference(argument)))
    front.show_growth()


def _two_references(argument: str) -> tuple[str, str]:
    """REF [DRAFT]; a path may have spaces, in quotes or when it is a file as it stands."""
    try:
        if Path(argument).expanduser().is_file():
            return argument, "auto"
    except (OSError, RuntimeError, ValueError):  # too long for a name, "~nobody", a NUL
        pass
    words = [a or b or c for a, b, c in re.findall(r"\"([^\"]+)\"|'([^']+)'|(\S+)", argument)]
    if len(words) > 2:
        raise InvalidOptionError(
            "/model takes a target and a draft; put a path with spaces in quotes"
        )
    return words[0], words[1] if len(words) == 2 else "auto"


def _draft_reference(argument: str) -> str | None:
    return None if argument.strip() == "none" else argument.strip()


def _system(front: FrontEnd, argument: str) -> None:
    chat = front.chat
    if not argument:
        now = chat.conversation.system
        front.say(f"the system prompt is: {now}" if now else "there is no system prompt")
        return
    text = "" if argument == "none" else argument
    chat.set_system(text)
    front.say("the system prompt holds from the next answer on" if text else "no system prompt now")
    front.show_growth()


def _set(front: FrontEnd, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if not name:
        set_now = front.chat.settings.answering
        shown = ", ".join(f"{key} {value}" for key, value in set_now.items())
        front.say(f"set: {shown or 'nothing; all options have their defaults'}")
        return
    _set_option(front, value.strip(), name=name.replace("-", "_"))


def _set_option(front: FrontEnd, text: str, *, name: str) -> None:
    """Set an option of answers; `auto` and `default` reset it, no text shows it."""
    chat = front.chat
    names = [f.name for f in dataclasses.fields(Options)]
    if name not in names or name in ("logit_bias", "n_alternatives"):
        near = difflib.get_close_matches(name, names, 1)
        raise InvalidOptionError(
            f"there is no option {name!r}" + (f": did you mean {near[0]}?" if near else "")
        )
    when = ""
    if text:
        value = None if text in ("auto", "default") else _value(name, text)
        chat.settings = chat.settings.answer_with(**{name: value})
        when = ", from the next answer on" if chat.live is not None else ""
        front.show_growth()
    front.say(f"{name} is {_shown(getattr(chat.settings.options, name))}{when}")


def _shown(value: Any) -> str:
    return "automatic" if value is None else str(value) if value != () else "none"


def _value(name: str, text: str) -> Any:
    kinds = get_args(get_type_hints(Options)[name]) or (get_type_hints(Options)[name],)
    if name == "stop":
        return (text,)
    try:
        if int in kinds:
            return int(text)
        if float in kinds:
            return float(text)
    except ValueError:
        raise InvalidOptionError(f"{name} is a number, not {text!r}") from None
    return text


def _spec(front: FrontEnd, argument: str) -> None:
    now = front.chat.settings.view
    view = argument or VIEWS[(VIEWS.index(now) + 1) % len(VIEWS)]
    front.chat.settings = replace(front.chat.settings, view=view)
    front.show_view(view)


def _exact(front: FrontEnd, argument: str) -> None:
    chat = front.chat
    now = bool(chat.settings.loading.get("exact"))
    wanted = {"": not now, "on": True, "off": False}.get(argument)
    if wanted is None:
        raise InvalidOptionError("/exact takes on or off")
    if wanted == now:
        front.say(f"exact mode is {'on' if now else 'off'}")
        return
    chat.load(chat.settings.load_with(exact=wanted or None))
    front.say(f"exact mode {'on' if wanted else 'off'}: the models are loaded again for it")
    front.show_growth()


def _retry(front: FrontEnd, _: str) -> None:
    front.chat.retry()
    front.show_all()


def _continue(front: FrontEnd, _: str) -> None:
    front.chat.continue_answer()
    front.show_all()


def _edit(front: FrontEnd, _: str) -> None:
    question = front.chat.conversation.last("user")
    if question is None:
        raise InvalidOptionError("there is no question yet")
    front.compose_text(question.text, question.id)


def _copy(front: FrontEnd, argument: str) -> None:
    turn = front.chat.conversation.last("assistant")
    if turn is None:
        raise InvalidOptionError("there is no answer yet")
    answer = split(turn.text, opened=turn.opened).answer
    if argument != "code":
        front.copy(answer, "the answer")
        return
    blocks = code_blocks(answer)
    if not blocks:
        raise InvalidOptionError("the answer has no code block")
    front.copy(blocks[-1], "the last code block")


def code_blocks(text: str) -> list[str]:
    """The bodies of the fenced code blocks."""
    return [match["body"] for match in _FENCE.finditer(text)]


def _save(front: FrontEnd, _: str) -> None:
    saved = front.chat.saved
    if saved.broken:
        raise InvalidOptionError(saved.broken)
    if not len(front.chat.conversation):
        front.say("there is nothing to save yet; every message is saved by itself")
        return
    front.say(f"saved as {saved.id}, like every message: {saved.path}")


def _load(front: FrontEnd, argument: str) -> None:
    if not argument:
        front.choose_chat()
        return
    saved = SavedChat.open(argument)
    front.chat.start_over(saved)
    front.show_all()
    if saved.damage:
        front.say(saved.damage)


def _new(front: FrontEnd, _: str) -> None:
    front.chat.start_over()
    front.show_all()


def _export(front: FrontEnd, argument: str) -> None:
    chat = front.chat
    word = argument.lower().lstrip(".")
    if not argument or f".{word}" in FORMATS:
        argument = f"localspec-{chat.saved.id}.{word or 'md'}"
    path = Path(argument)
    front.say(f"wrote {export(chat.conversation, path).absolute()}")


def _file(front: FrontEnd, argument: str) -> None:
    if not argument:
        raise InvalidOptionError("/file PATH attaches a text file; @PATH in a message does too")
    attachment = attach(Path(argument))
    n = front.chat.count_tokens(attachment.text)
    front.compose_text(f'@"{argument}" ' if " " in argument else f"@{argument} ", None)
    size = f"{n:,} tokens" if n is not None else f"{len(attachment.text):,} characters"
    front.say(f"{attachment.path.name}: {size}")


def _theme(front: FrontEnd, argument: str) -> None:
    if argument not in THEMES:
        raise InvalidOptionError(f"/theme takes one of {', '.join(THEMES)}")
    front.show_theme(argument)


def _quit(front: FrontEnd, _: str) -> None:
    front.leave()


COMMANDS: tuple[Command, ...] = (
    Command("help", "", "Commands and keys", _help),
    Command("model", "[REF [DRAFT]]", "Load another target, with its own draft", _model),
    Command("draft", "[REF|auto|none]", "Load another draft model", _draft, ("auto", "none")),
    Command("system", "[TEXT|none]", "Set the system prompt", _system),
    Command("temp", "[NUMBER]", "Temperature; 0 is greedy",
            partial(_set_option, name="temperature")),
    Command("ndraft", "[N|auto]", "Draft tokens per round",
            partial(_set_option, name="n_draft"), ("auto", "2", "4", "8")),
    Command("drafter", "[NAME]", "Where draft tokens come from",
            partial(_set_option, name="drafter"), DRAFTERS),
    Command("set", "[OPTION VALUE]", "Set any other option of answers", _set),
    Command("spec", "[off|inline|inspector]", "How draft tokens are shown", _spec, VIEWS),
    Command("exact", "[on|off]", "The same bytes as plain decoding", _exact, ("on", "off")),
    Command("retry", "", "Answer the last question again", _retry),
    Command("continue", "", "Continue an answer that was cut off", _continue),
    Command("edit", "", "Edit the last question and ask it again", _edit),
    Command("copy", "[code]", "Copy the last answer, or its last code block", _copy, ("code",)),
    Command("file", "PATH", "Attach a text file", _file),
    Command("save", "", "Show where this chat is saved", _save),
    Command("load", "[ID]", "Open a saved chat", _load),
    Command("new", "", "Start a new chat", _new),
    Command("export", "[md|json|html|PATH]", "Write this chat to a file", _export,
            ("md", "json", "html")),
    Command("theme", "dark|light|contrast|ansi", "Colours", _theme, THEMES),
    Command("quit", "", "Leave; the chat is saved", _quit),
)  # fmt: skip
