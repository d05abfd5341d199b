"""Python's full garbage collection, put off until nobody waits for the screen.

A long chat holds a million objects, and looking through all of them stops every thread for a
quarter of a second, in the middle of a keystroke or a decode. Young objects are still collected
at once; the rest waits for a moment when nothing is written and no key was pressed of late.
"""

from __future__ import annotations

import gc

__all__ = ["Collector"]

_NEVER = 1_000_000
_QUIET_S = 2.0


class Collector:
    """hold() when the screen starts, release() when it ends."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()
        self._busy_at: float | None = None  # when something last happened; None once collected

    def hold(self) -> None:
        """From here on nothing but look() collects everything."""
        self._before = gc.get_threshold()
        gc.collect()
        gc.set_threshold(self._before[0], self._before[1], _NEVER)

    def look(self, now: float, *, is_busy: bool) -> None:
        """Collect when it has been quiet since something happened. now: seconds."""
        if is_busy:
            self._busy_at = now
        elif self._busy_at is not None and now - self._busy_at > _QUIET_S:
            self._busy_at = None
            gc.collect()

    def release(self) -> None:
        """As it was."""
        gc.set_threshold(*self._before)
