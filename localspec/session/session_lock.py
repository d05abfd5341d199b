"""Who may use a session now: one generation at a time, given back however it ends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from localspec.decoding.events import Event
from localspec.errors import BusyError, CancelledError

__all__ = ["Exclusive", "FairLock", "Released"]


class FairLock:
    """A lock whose waiters are served in the order of their coming, and can be sent away.

    Like threading.Lock it may be released by another thread than the one that took it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[_Ticket] = deque()
        self._is_held = False
        self._holder = 0

    def try_acquire(self) -> bool:
        """Take it if it is free and nobody waits."""
        with self._guard:
            if self._is_held:
                return False
            self._is_held, self._holder = True, threading.get_ident()
            return True

    def wait(self) -> None:
        """Take it in turn. Raises CancelledError when sent away.

        An exception while waiting (Ctrl-C) gives the place back.
        """
        ticket = _Ticket(threading.get_ident())
        with self._guard:
            if not self._is_held:
                self._is_held, self._holder = True, ticket.thread
                return
            self._waiting.append(ticket)
        try:
            ticket.called.wait()
        except BaseException:
            self._give_up(ticket)
            raise
        if not ticket.served:
            raise CancelledError("cancelled while waiting for the session")

    def release(self) -> None:
        """Hand it to the one that waits longest, or let it be free."""
        with self._guard:
            self._hand_on()

    def locked(self) -> bool:
        """True while somebody holds it."""
        return self._is_held

    def is_held_by_me(self) -> bool:
        """True when this thread took it: to wait for it would be for ever."""
        return self._is_held and self._holder == threading.get_ident()

    def send_away(self) -> int:
        """Refuse all who wait now; their number."""
        with self._guard:
            n = len(self._waiting)
            while self._waiting:
                self._waiting.popleft().called.set()
            return n

    def _hand_on(self) -> None:
        if self._waiting:
            ticket = self._waiting.popleft()
            self._holder, ticket.served = ticket.thread, True
            ticket.called.set()
        else:
            self._is_held = False

    def _give_up(self, ticket: _Ticket) -> None:
        with self._guard:
            if ticket.served:  # it was handed over in the same moment
                self._hand_on()
            elif ticket in self._waiting:
                self._waiting.remove(ticket)


class _Ticket:
    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.called = threading.Event()
        self.served = False


class Exclusive:
    """The right to decode. wait: a second caller waits for its turn, else it gets BusyError."""

    def __init__(self, *, wait: bool = False) -> None:
        self.lock = FairLock()
        self._wait = wait

    def acquire(self) -> None:
        """Take it. Raises BusyError where waiting is not wanted or would never end,
        CancelledError for a waiter that was sent away.
        """
        if self.lock.try_acquire():
            return
        if not self._wait:
            raise BusyError(
                "this session is generating: wait for it (when_busy='wait' does), or load a "
                "second one"
            )
        if self.lock.is_held_by_me():
            raise BusyError(
                "this thread has an unfinished stream of this session, so that waiting would "
                "never end: close the stream first"
            )
        self.lock.wait()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class Released:
    """The events of one answer, giving the session back when they end, however they end."""

    def __init__(self, events: Iterator[Event], lock: FairLock) -> None:
        self._events: Any = events
        self._lock: FairLock | None = lock

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
