"""Snapshots of a memory that cannot be cut back, by llama.cpp's own state functions.

A recurrent state holds the whole text in a few vectors: a token that was read cannot be taken
out of it. What can be done is to keep copies of the state and to return to one. Of a hybrid memory
only the recurrent part is copied (LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY); its attention part is cut.

llama.cpp has a second way, n_rs_seq, which is not used: it says yes to a return behind the last
batch, or behind one that was aborted, and the state is then wrong (llama-memory-recurrent.cpp,
seq_rm, checks the distance alone).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

__all__ = ["Checkpoints"]

_KEPT = 4
_KEPT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _Snapshot:
    n: int
    state: npt.NDArray[np.uint8]


class Checkpoints:
    """Of sequence 0 of one native context; positions are counted in tokens.

    One snapshot follows the rounds, and each new one replaces it. Those taken with `keep` stay:
    up to four and 256 MiB (one at least), the oldest leave first.
    """

    def __init__(self, ctx: Any, memory: Any) -> None:
        self._ctx = ctx
        self._memory = memory
        self._rolling: _Snapshot | None = None
        self._kept: list[_Snapshot] = []

    def take(self, n: int, *, keep: bool) -> bool:
        """Copy the state, which has read n tokens. False when llama.cpp cannot give it."""
        if any(snapshot.n == n for snapshot in self._kept):
            return True
        snapshot = self._rolling
        if snapshot is None or snapshot.n != n:
            self._rolling = None  # frees the old copy before the new one is made
            snapshot = self._copy(n)
        if snapshot is None:
            return False
        if keep:
            self._rolling = None
            self._keep(snapshot)
        else:
            self._rolling = snapshot
        return True

    def restore(self, n: int) -> int:
        """Go back to the last snapshot of at most n tokens; their number, 0 without any.

        After 0 the memory is not to be used before it is cleared. Snapshots beyond are forgotten.
        """
        self.forget(n)
        for snapshot in sorted(self._all(), key=lambda found: -found.n):
            if self._write_back(snapshot):
                self.forget(snapshot.n)
                return snapshot.n
        self.clear()
        return 0

    def forget(self, n: int) -> None:
        """Drop the snapshots of more than n tokens: the text has changed there."""
        self._kept = [snapshot for snapshot in self._kept if snapshot.n <= n]
        if self._rolling is not None and self._rolling.n > n:
            self._rolling = None

    def clear(self) -> None:
        """Drop all."""
        self.forget(-1)

    def last(self, n: int) -> int:
        """Tokens of the last snapshot of at most n, 0 without any."""
        return max((snapshot.n for snapshot in self._all() if snapshot.n <= n), default=0)

    def _all(self) -> list[_Snapshot]:
        return [*self._kept, *([self._rolling] if self._rolling is not None else [])]

    def _keep(self, snapshot: _Snapshot) -> None:
        self._kept.append(snapshot)
        while len(self._kept) > 1 and (
            len(self._kept) > _KEPT or sum(len(kept.state) for kept in self._kept) > _KEPT_BYTES
        ):
            del self._kept[0]

    def _copy(self, n: int) -> _Snapshot | None:
        flags = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        size = int(llama_cpp.llama_state_seq_get_size_ext(self._ctx, 0, flags))
        if size <= 0:
            return None
        state = np.empty(size, np.uint8)
        written = llama_cpp.llama_state_seq_get_data_ext(
            self._ctx, _bytes_of(state), size, 0, flags
        )
        return _Snapshot(n, state) if int(written) == size else None

    def _write_back(self, snapshot: _Snapshot) -> bool:
        flags = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        size = len(snapshot.state)
        read = llama_cpp.llama_state_seq_set_data_ext(
            self._ctx, _bytes_of(snapshot.state), size, 0, flags
        )
        return (
            int(read) == size
            and bool(llama_cpp.llama_memory_seq_rm(self._memory, 0, snapshot.n, -1))
            and int(llama_cpp.llama_memory_seq_pos_max(self._memory, 0)) == snapshot.n - 1
        )


def _bytes_of(state: npt.NDArray[np.uint8]) -> Any:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
