"""SIGTERM and SIGHUP end the app as its own keys do: the terminal is left as it was found."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

__all__ = ["Ending"]

_NAMES = ("SIGTERM", "SIGHUP")  # there is no SIGHUP on Windows


class Ending:
    """watch() inside the running event loop of the main thread, release() when the screen ends."""

    def __init__(self) -> None:
        self._watched: list[int] = []

    def watch(self, leave: Callable[[int], object]) -> None:
        """leave: called with the exit code by which a shell knows the signal, 128 + its number."""
        loop = asyncio.get_running_loop()
        for name in _NAMES:
            number = getattr(signal, name, None)
            if number is None:
                continue
            # no handlers outside the main thread, none on Windows: the signal ends the process
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, leave, 128 + number)
                self._watched.append(number)

    def release(self) -> None:
        """The signals do again what they do by default."""
        loop = asyncio.get_running_loop()
        while self._watched:
            loop.remove_signal_handler(self._watched.pop())
