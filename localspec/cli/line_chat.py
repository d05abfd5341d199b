"""The chat line by line: for TERM=dumb, pipes, screen readers, and who prefers it.

The same commands as on the screen, from the same registry. What the model writes goes to standard
output, everything else to standard error.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterable

import click

from localspec.chat.chat import Chat
from localspec.chat.commands import COMMANDS, run_command
from localspec.chat.conversation import Turn, new_notes
from localspec.chat.desktop_tools import copy_to_desktop
from localspec.chat.engine_protocol import AnswerEvent, Failed, LoadedPair
from localspec.chat.model_choices import drafts, missing, targets
from localspec.chat.saved import list_chats
from localspec.decoding.events import Round
from localspec.errors import LocalspecError
from localspec.visible import visible

__all__ = ["LineChat"]

_POLL_S = 0.02


class LineChat:
    """Reads lines, answers them; is the commands' FrontEnd. `\\` at a line's end goes on below."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self._is_terminal = sys.stdin.isatty()
        self._left = False
        self._editing: str | None = None
        self._interrupted = threading.Event()
        self._said_loading = ""
        self._said_notes: set[str] = set()

    def run(self, first: str | None, *, may_fetch: bool) -> int:
        """Until the end of the input, or /quit; the exit code."""
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            if self.chat.saved.damage:
                self.say(self.chat.saved.damage)
            if not self._load(may_fetch=may_fetch):
                return 2
            if first is not None:
                self._take(first)
            while not self._left and (text := self._read()) is not None:
                if text.strip():
                    self._take(text)
            return 0
        finally:
            signal.signal(signal.SIGINT, before)
            self.chat.close()

    # What commands ask for.

    def say(self, text: str) -> None:
        """On standard error."""
        click.echo(f"localspec: {visible(text)}", err=True)

    def show_help(self) -> None:
        """The commands."""
        for command in COMMANDS:
            click.echo(f"  {f'/{command.name} {command.usage}':<34} {command.summary}", err=True)
        self.say("Ctrl-C stops an answer, twice at the prompt quits; @path attaches a text file")
        self.say("a line that ends in \\ goes on with the next one")

    def choose_model(self, role: str) -> None:
        """A list; the command takes one of it."""
        pair = self.chat.pair
        found = targets() if role == "target" else drafts(pair.target_path) if pair else []
        for candidate in found:
            refused = f" (does not fit: {candidate.refused})" if candidate.refused else ""
            self.say(f"{candidate.reference}: {candidate.note}{refused}")

    def choose_chat(self) -> None:
        """A list; /load takes one of it."""
        for saved in list_chats()[:20]:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(saved.written))
            self.say(f"{saved.id}  {when}  {saved.title}")

    def compose_text(self, text: str, editing: str | None) -> None:
        """Without a text box: the next line is the new text."""
        if editing:
            self._editing = editing
            self.say(f"the question was: {text}")
            self.say("type the new question")

    def copy(self, text: str, what: str) -> None:
        """To the platform's clipboard."""
        copied = copy_to_desktop(text)
        self.say(f"copied {what}" if copied else "there is no clipboard tool on this machine")

    def show_view(self, view: str) -> None:
        """Lines show the text alone."""
        self.say(f"the view is {view}; line by line, the text alone is shown")

    def show_theme(self, name: str) -> None:
        """Lines have no colours."""
        self.say("line by line, there are no colours")

    def show_all(self) -> None:
        """Nothing is drawn again; a question of another chat is edited no more."""
        if self._editing not in self.chat.conversation.turns:
            self._editing = None

    def show_growth(self) -> None:
        """Nothing is drawn again."""

    def leave(self) -> None:
        """After this line."""
        self._left = True

    # The work.

    def _load(self, *, may_fetch: bool) -> bool:
        try:
            wanted = missing(self.chat.settings.target, self.chat.settings.draft)
            if wanted and not may_fetch:
                names = ", ".join(candidate.reference for candidate in wanted)
                if not click.confirm(f"{names}: not on this machine. Fetch now?", err=True):
                    return False
            self.chat.load()
        except LocalspecError as error:
            self.say(str(error))
            return False
        self._wait()
        if self.chat.pair is None:
            return False
        self.say("Ctrl-D or /quit ends, /help lists the commands")
        return True

    def _read(self) -> str | None:
        lines: list[str] = []
        while True:
            prompt = ("… " if lines else "> ") if self._is_terminal else ""
            self._interrupted.clear()
            try:
                sys.stderr.write(prompt)
                sys.stderr.flush()
                line = sys.stdin.readline()
            except UnicodeDecodeError:
                self.say("that line is not UTF-8 text")
                return ""
            except KeyboardInterrupt:
                sys.stderr.write("\n")
                return None
            if not line:
                return "\n".join(lines) if lines else None
            line = line.rstrip("\n")
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    def _take(self, text: str) -> None:
        before = self.chat.conversation.head
        if text.startswith("/") and not text.startswith("//"):
            run_command(self, text)
        else:
            editing, self._editing = self._editing, None
            try:
                if editing:
                    self.chat.edit(editing, text)
                else:
                    self.chat.send(text.removeprefix("/") if text.startswith("//") else text)
            except LocalspecError as error:
                self.say(str(error))
                return
        if self.chat.is_busy:
            self._wait()
        turn = self.chat.conversation.turns.get(self.chat.conversation.head or "")
        if turn is not None and turn.id != before and turn.role == "assistant":
            self._tell_figures(turn)
        if self.chat.saved.broken:
            self._say_notes([self.chat.saved.broken])

    def _tell_figures(self, turn: Turn) -> None:
        figures = self.chat.figures
        self._say_notes(turn.notes)
        if figures is None or not figures.n_passes:
            return
        words = [f"{figures.n_tokens} tokens", f"{figures.mean:.1f} tokens/s"]
        if figures.speed_up is not None and self.chat.settings.options.drafter != "none":
            words.append(f"{figures.speed_up:.2f} × plain")
        if figures.acceptance is not None:
            words.append(f"accepted {figures.acceptance:.0%}")
        self.say(" · ".join(words))

    def _say_notes(self, notes: Iterable[str]) -> None:
        """Each of them once: answers repeat what holds for all."""
        for note in new_notes(notes, self._said_notes):
            self.say(note)

    def _wait(self) -> None:
        """Until the answer or the load is done; text is written as it comes."""
        last = "\n"
        while self.chat.is_busy:
            replies = self.chat.poll()
            for reply, _ in replies:
                if isinstance(reply, AnswerEvent) and isinstance(reply.event, Round):
                    text = reply.event.text
                    last = text[-1:] or last
                    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
                    sys.stdout.flush()
                elif isinstance(reply, Failed):
                    self.say(reply.error)
                elif isinstance(reply, LoadedPair):
                    self._say_notes(reply.notes)
            if self.chat.loading is not None and self.chat.loading != self._said_loading:
                self._said_loading = self.chat.loading
                self.say(self.chat.loading)
            if not replies:
                time.sleep(_POLL_S)
        if last != "\n":
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _interrupt(self, _signal: int, _frame: object) -> None:
        """Stop an answer or a load. At the prompt: say so once, then quit."""
        if self.chat.stop():
            return
        if self._interrupted.is_set():
            raise KeyboardInterrupt
        self._interrupted.set()
        click.echo("\nlocalspec: Ctrl-C again quits", err=True)
