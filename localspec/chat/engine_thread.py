"""The one thread that loads models and decodes; front ends talk to it through two queues.

The front end never waits for it, nor it for the front end: orders go in, news comes out, one
message for each round. Decoding stays in one thread for its whole life (see Session on threads).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from localspec.decoding.events import Event, Finished, Round
from localspec.errors import CancelledError, LocalspecError
from localspec.models.references import pair_draft, resolve
from localspec.session.options import LoadOptions, parse
from localspec.session.session import Session

__all__ = [
    "Answered",
    "Failed",
    "Fetching",
    "Loaded",
    "Loading",
    "News",
    "Order",
    "Speaker",
    "Talker",
    "open_pair",
]

_log = logging.getLogger(__name__)


class Talker(Protocol):
    """What a front end needs of a Session; tests script one."""

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

    def stream(self, prompt: Any, **options: Any) -> Iterator[Event]: ...
    def encode(self, prompt: Any) -> list[int]: ...
    def render(self, messages: Sequence[Any]) -> str: ...
    def plain_seconds(self, depth: int) -> float | None: ...
    def prepare(self, on_note: Callable[[str], None]) -> str | None: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Order:
    """Load a pair. draft: a reference, `auto`, or None. options: as for localspec.load."""

    target: str
    draft: str | None
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Loading:
    """Something takes time; words say what."""

    words: str


@dataclass(frozen=True, slots=True)
class Fetching:
    """A download: bytes."""

    label: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The pair is ready. outlook: whether the draft model pays here, in words."""

    order: Order
    talker: Talker
    outlook: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """An event of the answer `id`. plain_s: seconds of a plain step at this depth, estimated."""

    id: str
    event: Event
    plain_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An order did not work. id: of the answer, None for a load. is_bug: no named error."""

    error: str
    id: str | None = None
    is_bug: bool = False


News: TypeAlias = "Loading | Fetching | Loaded | Answered | Failed"

Opener: TypeAlias = "Callable[[Order, Callable[[News], None]], Talker]"


class Speaker:
    """Runs orders one after the other. `news` is drained by the front end.

    open_pair(order, tell): loads a pair, telling Loading and Fetching meanwhile.
    """

    def __init__(self, open_pair: Opener) -> None:
        self.news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._open = open_pair
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._talker: Talker | None = None
        self._counting = threading.Lock()  # who holds it has a talker that is not closed
        self._stop = threading.Event()
        self._leaving = threading.Event()
        # A daemon: a native call that does not end must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="speaker", daemon=True)
        self._thread.start()

    def load(self, order: Order) -> None:
        """Load a pair in place of the one that is loaded; stop() ends it at the next progress."""
        self._stop.clear()
        self._orders.put(lambda: self._load(order))

    def answer(self, answer_id: str, prompt: Any, options: dict[str, Any]) -> None:
        """Answer a prompt; its events follow as Answered, Finished the last."""
        self._stop.clear()
        self._orders.put(lambda: self._answer(answer_id, prompt, options))

    def stop(self) -> None:
        """End the running answer, which finishes as `cancelled`."""
        self._stop.set()
        talker = self._talker
        if talker is not None:
            talker.cancel()

    def count_tokens(self, text: str) -> int | None:
        """Tokens of a text, from any thread; None without a model. A load waits for the count."""
        with self._counting:
            return len(self._talker.encode(text)) if self._talker is not None else None

    def close(self, timeout_s: float = 1.5) -> bool:
        """Stop, free the models, end the thread. False when it did not end in time."""
        self._leaving.set()
        self.stop()
        self._orders.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            if self._leaving.is_set():
                continue
            order()
        self._drop()

    def _drop(self) -> None:
        """Free the pair, when nobody counts with it."""
        with self._counting:
            talker, self._talker = self._talker, None
            if talker is not None:
                talker.close()

    def _load(self, order: Order) -> None:
        self._drop()  # two pairs at once may not fit
        try:
            self._talker = talker = self._open(order, self._tell)
            outlook = talker.prepare(lambda words: self._tell(Loading(words)))
        except Exception as error:
            self._drop()
            self._tell_failure(error, None)
            return
        self.news.put(Loaded(order, talker, outlook))

    def _tell(self, news: News) -> None:
        """Progress of a load; the way out of it, too."""
        if self._stop.is_set() or self._leaving.is_set():
            raise CancelledError("loading was stopped")
        self.news.put(news)

    def _answer(self, answer_id: str, prompt: Any, options: dict[str, Any]) -> None:
        talker = self._talker
        if talker is None:
            self.news.put(Failed("no model is loaded: choose one with /model", answer_id))
            return
        try:
            stream = talker.stream(prompt, **options)
            if self._stop.is_set():  # before there was an answer to cancel
                talker.cancel()
            for event in stream:
                plain_s = talker.plain_seconds(event.depth) if isinstance(event, Round) else None
                self.news.put(Answered(answer_id, event, plain_s))
                if isinstance(event, Finished):
                    return
        except Exception as error:
            self._tell_failure(error, answer_id)

    def _tell_failure(self, error: Exception, answer_id: str | None) -> None:
        is_bug = not isinstance(error, LocalspecError)
        if is_bug:
            _log.exception("an order failed")
        words = f"{type(error).__name__}: {error}" if is_bug else str(error)
        self.news.put(Failed(words, answer_id, is_bug))


class _Talker(Session):
    """A session that prepares itself before the first answer, in the thread that decodes."""

    def prepare(self, on_note: Callable[[str], None]) -> str | None:
        """Measure what the first answer would need; whether the draft model pays, in words."""
        if self.exact:
            on_note("exact mode: looking for batch sizes with the bits of single steps …")
            self.exact_sizes(
                lambda depth: on_note(f"exact mode: comparing batch sizes at depth {depth:,} …")
            )
        if not self.can_draft:
            return None
        on_note("measuring what decoding costs here …")
        _ = self.costs
        outlook = self.outlook()
        return outlook.words if outlook is not None else None


def open_pair(order: Order, tell: Callable[[News], None]) -> Talker:
    """Resolve, fetch and load. Raises a LocalspecError that says what to do next."""
    options = parse(LoadOptions, order.options)
    wanted = pair_draft(order.target) if order.draft == "auto" else order.draft
    target = _resolve(order.target, "target", tell)
    draft = _resolve(wanted, "draft", tell) if wanted is not None else None
    names = target.name if draft is None else f"{target.name} + {draft.name}"
    tell(Loading(f"loading {names} …"))
    return _Talker(target, draft, options)


def _resolve(reference: str, role: str, tell: Callable[[News], None]) -> Path:
    tell(Loading(f"looking for {reference} …"))
    return resolve(
        reference,
        role=role,
        on_progress=lambda label, done, total: tell(Fetching(label, done, total)),
        on_note=lambda note: tell(Loading(note)),
    )
