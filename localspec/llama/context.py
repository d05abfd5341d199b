"""One model's cache of evaluated tokens, and decoding at its end.

The only place that calls llama_decode. It mirrors the cache as a list of ids, so that what is
cached is never a counter that can go wrong; after an interruption in the middle of a native call
the memory is asked, or goes back to a checkpoint, before it is used again. Knows nothing of drafts
or sampling.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError, InvalidOptionError
from localspec.llama.checkpoints import Checkpoints
from localspec.llama.model import Model
from localspec.llama.native import cache_type, last_error

__all__ = ["CancelFlag", "Cancelled", "Context", "common_prefix", "whole_n_ctx"]

_FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}


class Cancelled(Exception):
    """The abort flag stopped a decode; the cache holds what was finished before."""


class CancelFlag:
    """A flag that native code polls without taking the interpreter's lock.

    ggml asks `bool abort(void *)` before each piece of work. strlen has that shape: over a
    two-byte buffer it answers 0 until the first byte is set. A Python callback would take the
    lock hundreds of times per decode.
    """

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(2)
        libc: Any = ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)
        self.callback = ctypes.cast(libc.strlen, llama_cpp.ggml_abort_callback)
        self.address = ctypes.cast(self._buffer, ctypes.c_void_p)

    def set(self) -> None:
        """Stop the decode that is running and refuse the next ones."""
        self._buffer[0] = b"\x01"

    def clear(self) -> None:
        """Allow decoding again."""
        self._buffer[0] = b"\x00"

    def is_set(self) -> bool:
        """True between set() and clear()."""
        return self._buffer[0] != b"\x00"


def whole_n_ctx(n_ctx: int) -> int:
    """As llama.cpp makes it: the next multiple of 256."""
    return -(-n_ctx // 256) * 256


class Context:
    """A single sequence of tokens in one model's memory.

    n_ctx is rounded up to 256, n_batch is cut to n_ctx: read both back from the attributes.
    max_rows: how many rows of logits one decode may return (bounds memory:
    the engine reserves n_vocab floats for each). swa_full: layers with a sliding window keep all
    tokens too, so that they can be cut back.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        n_batch: int = 512,
        max_rows: int = 64,
        n_threads: int,
        n_threads_batch: int | None = None,
        flash_attn: str = "auto",
        type_k: str = "f16",
        type_v: str = "f16",
        swa_full: bool = True,
        cancel: CancelFlag | None = None,
    ) -> None:
        self.model = model
        self.cancel = cancel or CancelFlag()
        self.ids: list[int] = []
        n_ctx = whole_n_ctx(n_ctx)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = min(n_batch, n_ctx)
        params.n_outputs_max = min(max_rows, params.n_batch)
        params.n_threads = n_threads
        params.n_threads_batch = n_threads_batch or n_threads
        params.flash_attn_type = _flash_attention(flash_attn)
        params.type_k = cache_type(type_k)
        params.type_v = cache_type(type_v)
        params.swa_full = swa_full
        params.no_perf = True
        params.abort_callback = self.cancel.callback
        params.abort_callback_data = self.cancel.address
        last_error()
        self._ctx = llama_cpp.llama_init_from_model(model.handle, params)
        if not self._ctx:
            raise EngineError(
                f"no context of {n_ctx:,} tokens could be made for {model.path.name}: "
                f"{last_error() or 'no reason given'}. Try a smaller n_ctx, or other cache types"
            )
        self._memory = llama_cpp.llama_get_memory(self._ctx)
        self._checkpoints = Checkpoints(self._ctx, self._memory)
        self._unsure = False  # an exception may have come between the memory and `ids`
        self.n_ctx = int(llama_cpp.llama_n_ctx(self._ctx))
        self.n_batch = int(llama_cpp.llama_n_batch(self._ctx))
        self.max_rows = int(params.n_outputs_max)
        self.n_threads = n_threads
        self.type_k, self.type_v = type_k, type_v
        self.n_vocab = model.vocabulary.n_tokens
        self._batch = llama_cpp.llama_batch_init(self.n_batch, 0, 1)
        self._tokens = _view(self._batch.token, self.n_batch, np.int32)
        self._positions = _view(self._batch.pos, self.n_batch, np.int32)
        self._flags = _view(self._batch.logits, self.n_batch, np.int8)
        _view(self._batch.n_seq_id, self.n_batch, np.int32)[:] = 1
        for i in range(self.n_batch):
            self._batch.seq_id[i][0] = 0
        self._in_use = threading.Lock()

    def decode(self, ids: Sequence[int], *, n_rows: int) -> list[npt.NDArray[np.float32]]:
        """Append `ids` to the cache and return the logits of the last `n_rows` of them.

        Each row is float32, shape (n_vocab,): a view that dies at the next decode. Longer input
        than n_batch is cut in pieces; n_rows <= max_rows, and they fit into the last piece.
        Raises Cancelled when the flag was set, EngineError when llama.cpp refuses; in both
        cases `self.ids` is what the cache holds.
        """
        if not self._in_use.acquire(blocking=False):
            raise EngineError("two threads use one context: give each its own session")
        try:
            return self._decode(ids, n_rows)
        finally:
            self._in_use.release()

    @property
    def replays(self) -> bool:
        """True when the memory cannot be cut, so that tokens behind a checkpoint are read again."""
        return self.model.is_recurrent

    def checkpoint(self, *, keep: bool = False) -> bool:
        """Make it possible to return to this very point. False where llama.cpp cannot.

        keep: for later prompts too; else until the next checkpoint. Does nothing where the memory
        can be cut anywhere.
        """
        self._make_sure()
        if not self.replays or not self.ids:
            return True
        return self._checkpoints.take(len(self.ids), keep=keep)

    def truncate(self, n: int) -> bool:
        """Keep the first n tokens. False, and nothing changes, where the memory cannot.

        A memory that replays can where a checkpoint is; one with a narrow window (swa_full off)
        where the tokens before n are still there.
        """
        self._make_sure()
        if n >= len(self.ids):
            return True
        if self.replays:
            if self._checkpoints.last(n) != n:
                return False
            self._go_back(n)
            return len(self.ids) == n
        if not self._reaches_back(n):
            return False
        self._unsure = True
        if llama_cpp.llama_memory_seq_rm(self._memory, 0, n, -1):
            del self.ids[n:]
        self._recover()
        return len(self.ids) == n

    def clear(self) -> None:
        """Forget everything. Never fails."""
        if self._ctx is None:
            return
        self._unsure = True
        llama_cpp.llama_memory_clear(self._memory, False)
        self._checkpoints.clear()
        self.ids.clear()
        self._unsure = False

    def keep_prefix(self, ids: Sequence[int]) -> int:
        """Cut the cache to a prefix of `ids`, the longest that the memory can; its length."""
        self._make_sure()
        n = common_prefix(self.ids, ids)
        if self.replays and n < len(self.ids):
            self._go_back(n)
        elif not self.truncate(n):
            self.clear()
        return len(self.ids)

    @property
    def handle(self) -> Any:
        """The native pointer, for localspec.llama alone."""
        if self._ctx is None:
            raise EngineError("this context was closed")
        return self._ctx

    @property
    def n_positions(self) -> int:
        """Positions that the memory itself says it holds; len(ids) unless something is wrong."""
        return self._pos_max() + 1

    def close(self) -> None:
        """Free the cache and the batch; a second call does nothing."""
        if self._ctx is not None:
            self._tokens = self._positions = self._flags = np.empty(0, np.int32)
            self._checkpoints.clear()
            self.ids.clear()
            self._unsure = False
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._ctx)
            self._ctx = None

    def _decode(self, ids: Sequence[int], n_rows: int) -> list[npt.NDArray[np.float32]]:
        if self._ctx is None:
            raise EngineError("this context was closed")
        self._make_sure()
        if not 0 <= n_rows <= min(self.max_rows, len(ids)):
            raise EngineError(f"{n_rows} rows asked of {len(ids)} tokens, at most {self.max_rows}")
        if len(self.ids) + len(ids) > self.n_ctx:
            raise EngineError(
                f"{len(self.ids)} cached and {len(ids)} new tokens exceed n_ctx {self.n_ctx}"
            )
        n_last = 0
        for piece, rows in _pieces(ids, n_rows, self.n_batch):
            self._decode_piece(piece, rows)
            n_last = len(piece)
        return [self._row(i) for i in range(n_last - n_rows, n_last)]

    def _decode_piece(self, piece: Sequence[int], n_rows: int) -> None:
        if self.cancel.is_set():
            raise Cancelled
        n, start = len(piece), len(self.ids)
        self._batch.n_tokens = n
        self._tokens[:n] = piece
        self._positions[:n] = np.arange(start, start + n)
        self._flags[:n] = 0
        if n_rows:
            self._flags[n - n_rows : n] = 1
        self._unsure = True
        code = int(llama_cpp.llama_decode(self._ctx, self._batch))
        if code == 0:
            llama_cpp.llama_synchronize(self._ctx)
            self.ids += piece
            self._unsure = False
            return
        self._recover()
        if code == 2 or self.cancel.is_set():
            raise Cancelled
        meaning = {1: "it found no room in the cache", -1: "it calls the batch invalid"}
        raise EngineError(
            f"llama.cpp failed to decode {n} tokens at position {start} (code {code}: "
            f"{meaning.get(code, 'a fatal error')}) {last_error()}".rstrip()
        )

    def _make_sure(self) -> None:
        if self._unsure:
            self._recover()

    def _recover(self) -> None:
        """Bring memory and `ids` together again.

        After code 2 or a fatal one, pieces already processed stay in the memory; a recurrent state
        may have been overwritten halfway.
        """
        if self.replays:
            self._go_back(len(self.ids))
            return
        n_held = self._pos_max() + 1
        if n_held > len(self.ids):
            llama_cpp.llama_memory_seq_rm(self._memory, 0, len(self.ids), -1)
        else:
            del self.ids[n_held:]
        if self._pos_max() + 1 != len(self.ids):
            self.clear()
        self._unsure = False

    def _go_back(self, n: int) -> None:
        """To the last checkpoint of at most n tokens, or to the beginning."""
        self._unsure = True
        n_kept = self._checkpoints.restore(n)
        if n_kept:
            del self.ids[n_kept:]
            self._unsure = False
        else:
            self.clear()

    def _reaches_back(self, n: int) -> bool:
        """Are the tokens that the next one may look at still there once it stands at n?

        llama_memory_seq_rm says yes even where a narrow window has dropped them.
        """
        oldest = int(llama_cpp.llama_memory_seq_pos_min(self._memory, 0))
        return n == 0 or oldest <= max(0, n - self.model.n_swa)

    def _pos_max(self) -> int:
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, 0))

    def _row(self, i: int) -> npt.NDArray[np.float32]:
        pointer = llama_cpp.llama_get_logits_ith(self._ctx, i)
        if not pointer:
            raise EngineError(f"llama.cpp returned no logits for row {i}")
        return _view(pointer, self.n_vocab, np.float32)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading ids are the same; lists are compared in C, by halves."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high - 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _pieces(ids: Sequence[int], n_rows: int, n_batch: int) -> list[tuple[Sequence[int], int]]:
    """(ids, flagged rows) of each native batch; all flagged rows fall into the last one."""
    n_last = len(ids) % n_batch or n_batch
    n_last = max(n_last, n_rows) if len(ids) > n_batch else len(ids)
    head = len(ids) - n_last
    pieces: list[tuple[Sequence[int], int]] = [
        (ids[i : min(i + n_batch, head)], 0) for i in range(0, head, n_batch)
    ]
    if n_last:
        pieces.append((ids[head:], n_rows))
    return pieces


def _flash_attention(name: str) -> int:
    try:
        return _FLASH_ATTENTION[name]
    except KeyError:
        raise InvalidOptionError(f"flash_attn is {name!r}: choose auto, on or off") from None


def _view(pointer: Any, n: int, dtype: Any) -> npt.NDArray[Any]:
    """A numpy view of native memory, shape (n,). ctypes' own as_array is far slower."""
    address = ctypes.cast(pointer, ctypes.c_void_p).value or 0
    size = n * np.dtype(dtype).itemsize
    view: npt.NDArray[Any] = np.frombuffer((ctypes.c_char * size).from_address(address), dtype)
    return view
