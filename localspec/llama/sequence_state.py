"""A context's evaluated tokens as bytes, and back (llama.h, llama_state_seq_*).

The bytes are the engine's own: they are good for the same model, engine build and cache types.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp

from localspec.errors import EngineError
from localspec.llama.context import Context
from localspec.llama.native import last_error

__all__ = ["read_sequence", "write_sequence"]


def read_sequence(context: Context) -> bytes:
    """Everything that the memory holds of its one sequence. Raises EngineError."""
    n = int(llama_cpp.llama_state_seq_get_size(context.handle, 0))
    buffer = (ctypes.c_uint8 * n)()
    written = int(llama_cpp.llama_state_seq_get_data(context.handle, buffer, n, 0))
    if written != n:
        raise EngineError(f"llama.cpp wrote {written:,} of {n:,} bytes of the state {last_error()}")
    return bytes(buffer)


def write_sequence(context: Context, state: bytes, ids: Sequence[int]) -> None:
    """Make the memory what it was when `state` was read; `ids` are its tokens.

    Raises EngineError, with an empty cache, when llama.cpp does not take it.
    """
    context.clear()
    last_error()
    buffer: Any = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
    taken = int(llama_cpp.llama_state_seq_set_data(context.handle, buffer, len(state), 0))
    if taken != len(state) or context.n_positions != len(ids):
        context.clear()
        raise EngineError(f"llama.cpp did not take the state {last_error()}".rstrip())
    context.ids[:] = ids
