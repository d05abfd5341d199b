"""What the screen changes in the whole process while it is there, and puts back when it goes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable

__all__ = ["DelayedCollection", "ExitSignals"]

_NEVER = 1_000_000
_QUIET_S = 2.0
_SIGNALS = ("SIGTERM", "SIGHUP")  # there is no SIGHUP on Windows


class DelayedCollection:
    """Python's full garbage collection, put off until nobody waits for the screen.

    A long chat holds a million objects, and looking through all of them stops every thread for a
    quarter of a second, in the middle of a keystroke or a decode. Young objects are still
    collected at once.
    """

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._busy_at: float | None = None  # when something last happened; None once collected

    def start(self) -> None:
        """From here on only collect_when_quiet() collects everything."""
        self._before = gc.get_threshold()
        gc.set_threshold(self._before[0], self._before[1], _NEVER)

    def collect_when_quiet(self, now: float, *, is_busy: bool) -> None:
        """Collect once after it has been quiet for a while. now: seconds."""
        if is_busy:
            self._busy_at = now
        elif self._busy_at is not None and now - self._busy_at > _QUIET_S:
            self._busy_at = None
            gc.collect()

    def stop(self) -> None:
        """Collect as before."""
        gc.set_threshold(*self._before)


class ExitSignals:
    """SIGTERM and SIGHUP end the app as its own keys do, so the terminal is left as it was found.

    start() inside the running event loop of the main thread.
    """

    def __init__(self) -> None:
        self._handled: list[int] = []

    def start(self, leave: Callable[[int], object]) -> None:
        """leave: called with the exit code by which a shell knows the signal, 128 + its number."""
        loop = asyncio.get_running_loop()
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is None:
                continue
            # no handlers outside the main thread, none on Windows: the signal ends the process
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, leave, 128 + number)
                self._handled.append(number)

    def stop(self) -> None:
        """The signals do again what they do by default."""
        loop = asyncio.get_running_loop()
        while self._handled:
            loop.remove_signal_handler(self._handled.pop())
