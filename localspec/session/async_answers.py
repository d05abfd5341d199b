"""The one thread of this process that decodes for callers that must not block.

One thread, since each that ever decoded keeps OpenMP workers of its own and a second set slows
both (see Session). Work runs in the order in which it was handed in. The thread starts with the
first work and is stopped when the interpreter ends, whatever it is doing.
"""

from __future__ import annotations

import asyncio
import atexit
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from localspec.decoding.events import Event, Finished
from localspec.errors import CancelledError

__all__ = [
    "N_AHEAD",
    "AsyncEvents",
    "DecodingThread",
    "Outcome",
    "ThreadedAnswer",
    "decoding_thread",
    "whole_answer",
]

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


N_AHEAD = 16


class AsyncEvents:
    """`async for` over one answer: Prefill…, Round…, Finished. Session.astream makes it.

    The engine runs at most N_AHEAD events ahead of the reader, then it waits. Leaving the loop,
    aclose(), and cancelling the task that waits for an event stop the decode within the native
    call that runs and leave both caches at the committed tokens; the iteration is over then.
    Errors of the prompt and the options are raised at the first event. One task reads it.
    """

    _is_over = True  # until everything is in place

    def __init__(self, answer: ThreadedAnswer, thread: DecodingThread) -> None:
        self._answer = answer
        self._thread = thread
        self._deliver = _deliverer(asyncio.get_running_loop(), weakref.ref(self), answer)
        self._forget_at_exit = thread.on_exit(answer.stop)
        self._ready: deque[Outcome] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._n_ahead = 0  # steps handed to the thread whose outcome was not read yet
        self._is_over = False

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> Event:
        if self._waiting is not None:
            raise RuntimeError("two tasks read one answer: give each its own astream()")
        self._run_ahead()
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            except asyncio.CancelledError:
                await self.aclose()
                raise
            finally:
                self._waiting = None
        found = self._ready.popleft()
        self._n_ahead -= 1
        if isinstance(found, (Finished, BaseException)):
            self._end()
        if isinstance(found, BaseException):
            raise found
        return found

    async def __aenter__(self) -> AsyncEvents:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop early, and return when the session is free again. A second call does nothing."""
        closed = self._stop()
        if closed is not None:
            await asyncio.shield(asyncio.wrap_future(closed))

    def __del__(self) -> None:
        self._stop()

    def _run_ahead(self) -> None:
        while not self._is_over and self._n_ahead < N_AHEAD:
            self._n_ahead += 1
            self._thread.submit(_step(self._answer, self._deliver))

    def _take(self, found: Outcome) -> None:
        if self._is_over:
            return
        self._ready.append(found)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _stop(self) -> Future[None] | None:
        if self._is_over:
            return None
        self._end()
        self._ready.clear()
        self._answer.stop()
        return self._thread.submit(self._answer.close)

    def _end(self) -> None:
        self._is_over = True
        self._forget_at_exit()


async def whole_answer(
    answer: ThreadedAnswer, fold: Callable[[Iterator[Event]], T], thread: DecodingThread
) -> T:
    """What `fold` makes of all events of an answer, made behind the thread's earlier work.

    Cancelling the task stops the decode as for AsyncEvents, and returns when it has stopped.
    """
    forget_at_exit = thread.on_exit(answer.stop)
    made = asyncio.wrap_future(thread.submit(lambda: answer.whole(fold)))
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        answer.stop()
        await asyncio.wait([made])
        if not made.cancelled():
            made.exception()  # nobody else will ask for it
        raise
    finally:
        forget_at_exit()


def _step(answer: ThreadedAnswer, deliver: Callable[[Outcome], None]) -> Callable[[], None]:
    return lambda: answer.step(deliver)


def _deliverer(
    loop: asyncio.AbstractEventLoop,
    reader: weakref.ref[AsyncEvents],
    answer: ThreadedAnswer,
) -> Callable[[Outcome], None]:
    """From the decoding thread to the loop. Holds no reader: an abandoned one must be freed."""

    def take(found: Outcome) -> None:
        events = reader()
        if events is not None:
            events._take(found)

    def deliver(found: Outcome) -> None:
        try:
            loop.call_soon_threadsafe(take, found)
        except RuntimeError:  # the loop was closed: nobody reads on
            answer.stop()

    return deliver
