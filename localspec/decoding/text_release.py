"""From token pieces to text that may be shown: whole characters, and no stop string.

Knows nothing of ids or models. Bytes go in; text comes out once nothing that follows can change
or withdraw it.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

__all__ = ["TextRelease"]


class TextRelease:
    """Incremental UTF-8 decoding with stop strings held back while they may complete."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.n_released = 0
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """Text that became final with this piece. Sets `stopped` at a complete stop string."""
        return self._release(self._decoder.decode(piece))

    def flush(self, *, is_cut: bool = False) -> str:
        """What was held back at the end.

        is_cut: the answer would have gone on, so that half a character at its end is left out;
        where the model itself ended there, it becomes one U+FFFD.
        """
        if self.stopped:
            return ""
        text = "" if is_cut else self._release(self._decoder.decode(b"", final=True))
        if not self.stopped:
            self.n_released += len(self._held)
            text, self._held = text + self._held, ""
        return text

    @property
    def n_seen(self) -> int:
        """Characters decoded so far that are released or held."""
        return self.n_released + len(self._held)

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        held = self._held + text
        found = [at for at in (held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            self._held = ""
            released = held[: min(found)]
        else:
            n = self._n_possible_stop(held)
            released, self._held = held[: len(held) - n], held[len(held) - n :]
        self.n_released += len(released)
        return released

    def _n_possible_stop(self, text: str) -> int:
        """Length of the longest suffix of `text` that begins a stop string."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for n in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[len(text) - n :]) for stop in self._stops):
                return n
        return 0
