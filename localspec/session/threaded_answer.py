"""One answer in the decoding thread, and the flag that stops it from any other thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

from localspec.decoding.events import Event, Finished
from localspec.errors import CancelledError

__all__ = ["Outcome", "ThreadedAnswer"]

T = TypeVar("T")
Outcome: TypeAlias = "Event | BaseException"


class ThreadedAnswer:
    """Steps and whole() run in the decoding thread; stop() in any.

    begin: makes the stream, taking the session. cancel: stops the answer that the session makes;
    called only while that is this one.
    """

    def __init__(self, begin: Callable[[], Iterator[Event]], cancel: Callable[[], None]) -> None:
        self._begin = begin
        self._cancel = cancel
        self._events: Iterator[Event] | None = None
        self._guard = threading.RLock()  # a finaliser may come in between
        self._is_stopped = False
        self._is_over = False

    def stop(self) -> None:
        """Take no step after the one that runs, and cut that one short in native code."""
        with self._guard:
            self._is_stopped = True
            if self._events is not None:
                self._cancel()

    def step(self, deliver: Callable[[Outcome], None]) -> None:
        """Deliver one event, or the error that ended the answer; nothing once it is over."""
        if self._is_stopped or self._is_over:
            return
        try:
            event = next(self._open())
        except BaseException as error:
            self.close()
            deliver(error)
            return
        if isinstance(event, Finished):
            self.close()
        deliver(event)

    def whole(self, fold: Callable[[Iterator[Event]], T]) -> T:
        """What `fold` makes of all events. Raises CancelledError when it was stopped before."""
        if self._is_stopped:
            raise CancelledError("stopped before it began")
        try:
            return fold(self._open())
        finally:
            self.close()

    def close(self) -> None:
        """Give the session back; both caches end at the committed tokens."""
        with self._guard:
            self._is_over = True
            events, self._events = self._events, None
        close = getattr(events, "close", None)
        if close is not None:
            close()

    def _open(self) -> Iterator[Event]:
        if self._events is None:
            events = self._begin()
            with self._guard:  # from here on cancel() means this answer
                self._events = events
                if self._is_stopped:
                    self._cancel()
        return self._events
