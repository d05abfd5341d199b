"""The chat's engine in a thread of this process (see engine_protocol.py).

Loading and decoding stay in one thread for its whole life (see Session on threads). Requests and
replies are queued, so neither side waits for the other.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from localspec.chat.engine_protocol import (
    AnswerEvent,
    AnswerStarted,
    Downloading,
    Failed,
    Generate,
    LoadedPair,
    Loading,
    OpenPair,
    Reply,
)
from localspec.chat.thinking import opens_thinking
from localspec.control.economics import COPIES_ALONE
from localspec.decoding.events import Event
from localspec.errors import CancelledError, LocalspecError
from localspec.models.references import pair_draft, resolve
from localspec.session.options import LoadOptions, parse
from localspec.session.session import Session

__all__ = ["ChatSession", "EngineThread", "open_session"]

_log = logging.getLogger(__name__)
_CLOSE_WITHIN_S = 1.5


class ChatSession(Protocol):
    """What the engine thread calls of a Session; tests script one."""

    @property
    def n_ctx(self) -> int: ...
    @property
    def n_threads(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def target_path(self) -> Path: ...
    @property
    def draft_path(self) -> Path | None: ...

    def prepare(self, on_step: Callable[[str], None]) -> str | None: ...
    def stream(self, prompt: Any, **options: Any) -> Iterator[Event]: ...
    def encode(self, prompt: Any) -> list[int]: ...
    def render(self, messages: Sequence[Any]) -> str: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...


OpenSession: TypeAlias = "Callable[[OpenPair, Callable[[Reply], None]], ChatSession]"


class EngineThread:
    """A ChatEngine. open_session(request, reply) loads a pair; reply takes its progress, and
    raises CancelledError when the load was cancelled.
    """

    def __init__(self, open_session: OpenSession) -> None:
        self._open_session = open_session
        self._requests: queue.SimpleQueue[OpenPair | Generate | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._session: ChatSession | None = None
        self._counting = threading.Lock()  # while it is held the session is not closed
        self._cancelled = threading.Event()
        self._closing = threading.Event()
        # A daemon: a native call that does not end must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def open(self, request: OpenPair) -> None:
        """See ChatEngine."""
        self._submit(request)

    def generate(self, request: Generate) -> None:
        """See ChatEngine."""
        self._submit(request)

    def cancel(self) -> None:
        """See ChatEngine."""
        self._cancelled.set()
        session = self._session
        if session is not None:
            session.cancel()

    def count_tokens(self, prompt: str | Sequence[dict[str, str]]) -> int | None:
        """See ChatEngine. A load waits for the count."""
        with self._counting:
            return len(self._session.encode(prompt)) if self._session is not None else None

    def receive(self) -> Reply | None:
        """See ChatEngine."""
        return None if self._replies.empty() else self._replies.get()

    def close(self) -> bool:
        """See ChatEngine."""
        self._closing.set()
        self.cancel()
        self._requests.put(None)
        self._thread.join(_CLOSE_WITHIN_S)
        return not self._thread.is_alive()

    def _submit(self, request: OpenPair | Generate) -> None:
        self._cancelled.clear()
        self._requests.put(request)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            if self._closing.is_set():
                continue
            try:
                if isinstance(request, OpenPair):
                    self._load(request)
                else:
                    self._answer(request)
            except Exception as error:
                self._reply_failure(error, None if isinstance(request, OpenPair) else request.id)
        self._drop_session()

    def _load(self, request: OpenPair) -> None:
        self._drop_session()  # two pairs at once may not fit
        try:
            self._session = session = self._open_session(request, self._reply_progress)
            why_not = session.prepare(lambda words: self._reply_progress(Loading(words)))
        except Exception:
            self._drop_session()
            raise
        self._replies.put(
            LoadedPair(
                session.target_path,
                session.draft_path,
                session.device,
                session.n_threads,
                session.n_ctx,
                session.exact,
                tuple(session.notes),
                why_not,
            )
        )

    def _answer(self, request: Generate) -> None:
        session = self._session
        if session is None:
            self._replies.put(Failed("no model is loaded: choose one with /model", request.id))
            return
        opened = opens_thinking(session.render(request.messages))
        self._replies.put(AnswerStarted(request.id, opened))
        prompt: Any = request.messages
        if request.continued:
            prompt = [*session.encode(prompt), *request.continued]
        events = session.stream(prompt, **request.options)
        if self._cancelled.is_set():  # before there was an answer to cancel
            session.cancel()
        for event in events:
            self._replies.put(AnswerEvent(request.id, event))

    def _drop_session(self) -> None:
        """Free the pair, when nobody counts with it."""
        with self._counting:
            session, self._session = self._session, None
            if session is not None:
                session.close()

    def _reply_progress(self, reply: Reply) -> None:
        if self._cancelled.is_set() or self._closing.is_set():
            raise CancelledError("loading was stopped")
        self._replies.put(reply)

    def _reply_failure(self, error: Exception, answer_id: str | None) -> None:
        is_bug = not isinstance(error, LocalspecError)
        if is_bug:
            _log.exception("a request failed")
        words = f"{type(error).__name__}: {error}" if is_bug else str(error)
        self._replies.put(Failed(words, answer_id, is_bug))


class _PreparedSession(Session):
    """A session that measures what its first answer needs, in the thread that decodes."""

    def prepare(self, on_step: Callable[[str], None]) -> str | None:
        """Why the draft model does not pay here; None when it does, or when there is none."""
        if self.exact:
            on_step("exact mode: looking for batch sizes that give the bits of single steps …")
            self.exact_sizes(
                lambda depth: on_step(f"exact mode: comparing batch sizes at depth {depth:,} …")
            )
        if not self.can_draft:
            return None
        on_step("measuring the costs of decoding …")
        _ = self.costs
        outlook = self.outlook()
        if outlook is None or outlook.pays:
            return None
        return f"{COPIES_ALONE}: {outlook.words}"


def open_session(request: OpenPair, reply: Callable[[Reply], None]) -> ChatSession:
    """Resolve, download and load. Raises a LocalspecError that says what to do next."""
    options = parse(LoadOptions, request.options)
    wanted = pair_draft(request.target) if request.draft == "auto" else request.draft
    target = _resolve(request.target, "target", reply)
    draft = _resolve(wanted, "draft", reply) if wanted is not None else None
    names = target.name if draft is None else f"{target.name} + {draft.name}"
    reply(Loading(f"loading {names} …"))
    return _PreparedSession(target, draft, options)


def _resolve(reference: str, role: str, reply: Callable[[Reply], None]) -> Path:
    reply(Loading(f"looking for {reference} …"))
    return resolve(
        reference,
        role=role,
        on_progress=lambda label, done, total: reply(Downloading(label, done, total)),
        on_note=lambda note: reply(Loading(note)),
    )
