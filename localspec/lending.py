"""Who may use a session now: one generation at a time, given back however it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from localspec.errors import BusyError
from localspec.speculation.events import Event

__all__ = ["Exclusive", "Released"]


class Exclusive:
    """A lock that is never waited for; BusyError tells that somebody holds it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def acquire(self) -> None:
        """Take it, or raise BusyError."""
        if not self.lock.acquire(blocking=False):
            raise BusyError("this session is generating: wait, or load a second one")

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class Released:
    """The events of one answer, giving the session back when they end, however they end."""

    def __init__(self, events: Iterator[Event], lock: threading.Lock) -> None:
        self._events: Any = events
        self._lock: threading.Lock | None = lock

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        try:
            event: Event = next(self._events)
        except BaseException:
            self._release()
            raise
        return event

    def close(self) -> None:
        """Stop early; both caches are cut to what was committed."""
        try:
            self._events.close()
        finally:
            self._release()

    def __del__(self) -> None:
        self.close()

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
