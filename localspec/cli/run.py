"""`localspec run`: one prompt, text to stdout as it is made, what it gained to stderr."""

from __future__ import annotations

import contextlib
import queue
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.main import EXIT_INTERRUPTED
from localspec.cli.options import chosen_options, chosen_shape, shaping_options, shared_options
from localspec.errors import InvalidOptionError, LocalspecError
from localspec.visible import visible

if TYPE_CHECKING:
    from localspec.decoding.events import Event, Finished, Stats
    from localspec.session.session import Session

__all__ = ["run"]


@click.command()
@click.argument("prompt", required=False)
@shared_options
@shaping_options
@click.option("--raw", is_flag=True, help="Continue the text; no chat template.")
@click.option("--system", help="System message.")
@click.option("--show-draft", is_flag=True, help="Show accepted and rejected tokens.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--trace", type=click.Path(dir_okay=False), help="Record for `localspec replay`.")
@click.option(
    "--verbose", "-v", is_flag=True, help="What is loaded and how, and where the time went."
)
def run(prompt: str | None, **given: Any) -> None:
    """Answer PROMPT (`-`, or nothing with a pipe: standard input)."""
    from localspec.cli.loading import load_with_progress, prepare
    from localspec.session.options import Options, parse

    loading, answer = chosen_options(given)  # a wrong one is told before gigabytes are loaded
    answer.update(chosen_shape(given))
    parse(Options, answer)
    if given["as_json"] and given["show_draft"]:
        raise InvalidOptionError("--json and --show-draft exclude each other")
    text = _prompt(prompt)
    question = _question(text, raw=given["raw"], system=given["system"])

    trace = given["trace"]
    if trace is not None and not Path(trace).absolute().parent.is_dir():
        raise InvalidOptionError(f"the folder of --trace does not exist: {Path(trace).parent}")
    draft = None if given["draft"] == "none" else given["draft"]
    if answer.get("drafter") in ("none", "ngram"):
        draft = None
    with load_with_progress(given["target"], draft, loading) as session:
        drafting = answer.get("drafter") != "none" and answer.get("n_draft") != 0

        def begin() -> Iterator[Event]:
            prepare(session, drafting=drafting)
            if given["verbose"] or sys.stderr.isatty():
                _introduce(session, drafting=drafting, verbose=given["verbose"])
            return session.stream(question, **answer)

        finished, interrupted, events = _show(session, begin, given)
        for note in finished.stats.notes:
            click.echo(f"localspec: note: {visible(note)}", err=True)
        click.echo(gain_line(finished.stats, finished.reason), err=True)
        if given["verbose"]:
            click.echo(details_line(finished.stats), err=True)
        if trace is not None and not interrupted:
            _record(session, Path(trace), question, answer, events)
        elif trace is not None:
            click.echo("localspec: the answer was interrupted: no trace was written", err=True)
    if interrupted:
        sys.exit(EXIT_INTERRUPTED)


def gain_line(stats: Stats, reason: str) -> str:
    """What a person wants to know at the end: how long it took, and what drafting gained."""
    cut = {"length": " (cut at --max-tokens)", "context": " (cut: the context is full)"}
    n, rate, speed_up = stats.predicted_n, stats.acceptance_rate, stats.speed_up
    parts = [f"{n} {'token' if n == 1 else 'tokens'}{cut.get(reason, '')}"]
    if n:
        parts[0] += f" in {stats.predicted_s:.1f} s"
        per_second = stats.predicted_per_second
        speed = f"{per_second:.0f} tokens/s" if per_second >= 10 else f"{per_second:.1f} tokens/s"
        parts.append(speed + (f", {speed_up:.2f} × plain" if speed_up is not None else ""))
    if rate is not None:
        parts.append(f"{rate:.0%} of the guesses right")
        parts.append(f"{stats.tokens_per_pass:.1f} tokens per pass")
    elif stats.drafter == "none":
        parts.append("plain decoding")
    elif n:
        parts.append("nothing drafted, as it would not have paid")
    return " · ".join(parts)


def details_line(stats: Stats) -> str:
    """For --verbose: where the time went, the draft tokens, the prompt."""
    n_verified = stats.draft_n_accepted + stats.draft_n_rejected
    parts = []
    if stats.predicted_s > 0:
        parts.append(
            f"time: {stats.draft_s / stats.predicted_s:.0%} drafting, "
            f"{stats.verify_s / stats.predicted_s:.0%} verification, "
            f"{stats.other_s / stats.predicted_s:.0%} other"
        )
    if stats.draft_n:
        parts.append(
            f"draft tokens: {stats.draft_n_accepted} accepted, {stats.draft_n_rejected} rejected, "
            f"{stats.draft_n - n_verified} discarded"
        )
    if stats.n_passes:
        parts.append(f"{stats.n_passes} target passes")
    parts.append(f"prompt: {stats.cache_n} tokens cached, {stats.prompt_n} evaluated")
    if stats.prompt_n > 1:
        parts[-1] += f" in {stats.prompt_s:.2f} s"
    parts.append(f"drafter {stats.drafter}, verifier {stats.verifier}, seed {stats.seed}")
    return " · ".join(parts)


def _prompt(prompt: str | None) -> str:
    if prompt is not None and prompt != "-":
        return prompt
    if prompt is None and sys.stdin.isatty():
        raise InvalidOptionError('give a prompt: localspec run "…", or - to read standard input')
    raw = sys.stdin.buffer.read()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidOptionError(
            f"standard input is not UTF-8 text (byte {error.start} of {len(raw)})"
        ) from None


def _question(text: str, *, raw: bool, system: str | None) -> str | list[dict[str, str]]:
    if raw:
        if system is not None:
            raise InvalidOptionError("--system needs the chat template: leave out --raw")
        return text
    user = {"role": "user", "content": text}
    return [{"role": "system", "content": system}, user] if system else [user]


def _loaded(session: Session) -> str:
    target = session.target_path.name
    draft = session.draft_path.name if session.draft_path else "no draft model"
    return visible(
        f"{target} + {draft} · {session.device}, {_n_threads(session.n_threads)} · "
        f"context {session.n_ctx:,} tokens"
    )


def _n_threads(n: int) -> str:
    return f"{n} thread" if n == 1 else f"{n} threads"


def _introduce(session: Session, *, drafting: bool, verbose: bool) -> None:
    click.echo(_loaded(session), err=True)
    if not verbose:
        return
    for line in session.memory.lines():
        click.echo(f"memory, {line}", err=True)
    outlook = session.outlook() if drafting else None
    if outlook is not None:
        click.echo(outlook.details, err=True)


def _show(
    session: Session, begin: Callable[[], Iterator[Event]], given: dict[str, Any]
) -> tuple[Finished, bool, list[Event]]:
    """Print the answer; True when Ctrl-C cut it short. The events are kept for a trace."""
    from localspec.cli.show import JsonPrinter, StyledPrinter, TextPrinter

    terminal = sys.stdout.isatty()
    printer: Any = TextPrinter(sys.stdout, terminal=terminal)
    if given["as_json"]:
        printer = JsonPrinter(sys.stdout)
    elif given["show_draft"] and terminal:
        printer = StyledPrinter(sys.stdout)
    elif given["show_draft"]:
        click.echo("localspec: note: --show-draft needs a terminal; the text is plain", err=True)
    answering = _Answering(session, begin)
    kept: list[Event] = []
    with contextlib.closing(answering.events()) as events:  # the thread ends before the session
        for event in events:
            printer.show(event)
            if given["trace"] is not None:
                kept.append(event)
    printer.end()
    assert answering.finished is not None
    return answering.finished, answering.interrupted, kept


def _record(
    session: Session, path: Path, question: Any, answer: dict[str, Any], events: list[Event]
) -> None:
    """Write the trace; both models read the answer once more for it."""
    from localspec.bench.trace import record

    click.echo("localspec: both models read the answer once more for the trace …", err=True)
    record(session, path, question, answer, events)
    click.echo(f"localspec: wrote {path}; see `localspec replay`", err=True)


class _Answering:
    """Runs the generation in a thread of its own, so that Ctrl-C is felt inside native code.

    Python delivers a signal only between byte codes of the main thread; a prefill of 512 tokens
    is one native call of seconds. The main thread waits for events and sets the abort flag. It
    decodes nothing itself, measurements included: see Session on threads.
    """

    def __init__(self, session: Session, begin: Callable[[], Iterator[Event]]) -> None:
        self._session = session
        self._begin = begin
        self._events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self.interrupted = False
        self.finished: Finished | None = None

    def events(self) -> Generator[Event, None, None]:
        """The events, Finished last; closing it stops the generation and waits for its thread."""
        thread = threading.Thread(target=self._generate, name="generation")
        before = signal.signal(signal.SIGINT, self._interrupt)
        thread.start()
        try:
            while self.finished is None:
                yield self._next()
        finally:
            self._session.cancel()
            thread.join()
            signal.signal(signal.SIGINT, before)

    def _generate(self) -> None:
        from localspec.decoding.events import Finished

        try:
            stream = self._begin()
            if self.interrupted:  # before there was an answer to cancel
                self._session.cancel()
            for event in stream:
                self._events.put(event)
                if isinstance(event, Finished):
                    return
        except BaseException as error:
            self._events.put(error)

    def _next(self) -> Event:
        from localspec.decoding.events import Finished

        event = self._events.get()
        if isinstance(event, LocalspecError):
            raise event
        if isinstance(event, BaseException):
            raise RuntimeError("the generation failed") from event
        if isinstance(event, Finished):
            self.finished = event
        return event

    def _interrupt(self, _signal: int, _frame: object) -> None:
        """The first Ctrl-C ends the answer; the next one is Python's own."""
        self.interrupted = True
        self._session.cancel()
        signal.signal(signal.SIGINT, signal.default_int_handler)
