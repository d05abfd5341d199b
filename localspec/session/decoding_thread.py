"""The one thread of this process that decodes for callers that must not block.

One thread, since each that ever decoded keeps OpenMP workers of its own and a second set slows
both (see Session). Work runs in the order in which it was handed in. The thread starts with the
first work and is stopped when the interpreter ends, whatever it is doing.
"""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

__all__ = ["DecodingThread", "decoding_thread"]

T = TypeVar("T")
Work: TypeAlias = "tuple[Callable[[], Any], Future[Any]]"

_LONGEST_FAREWELL_S = 5.0


class DecodingThread:
    """Runs functions one after the other and hands back futures."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._guard = threading.RLock()  # a finaliser may come in between
        self._thread: threading.Thread | None = None
        self._stoppers: set[Callable[[], None]] = set()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run it behind everything that was handed in before."""
        future: Future[T] = Future()
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="localspec", daemon=True)
                self._thread.start()
                atexit.register(self._stop)
        self._work.put((function, future))
        return future

    def on_exit(self, stop: Callable[[], None]) -> Callable[[], None]:
        """Call `stop` when the interpreter ends; returns the function that takes this back."""
        self._stoppers.add(stop)
        return lambda: self._stoppers.discard(stop)

    def is_current(self) -> bool:
        """True within the thread."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            function, future = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del work, function, future  # or the last answer lives until the next

    def _stop(self) -> None:
        for stop in list(self._stoppers):
            stop()
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(_LONGEST_FAREWELL_S)


decoding_thread = DecodingThread()
