"""One answer for asyncio, from the same stream that plain callers read.

The decoding thread takes the steps; the event loop only waits. Between two steps of one answer
other work of that thread has its turn.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from localspec.decoding.events import Event, Finished
from localspec.session.decoding_thread import DecodingThread
from localspec.session.threaded_answer import Outcome, ThreadedAnswer

__all__ = ["N_AHEAD", "AsyncEvents", "whole_answer"]

T = TypeVar("T")

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
