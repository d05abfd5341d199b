"""Start-up of llama.cpp: backend, log routing, and the few constants that have names.

Nothing native ever writes to the terminal: every log line goes to the logger `localspec.llama`
(the last error lines are kept, to be quoted in named errors).
"""

from __future__ import annotations

import collections
import ctypes
import functools
import logging
from typing import Any

import llama_cpp

from localspec.errors import InvalidOptionError

__all__ = ["GGML_TYPES", "cache_type", "init_backend", "last_error"]

logger = logging.getLogger("localspec.llama")

_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_errors: collections.deque[str] = collections.deque(maxlen=4)

# K/V cache types that llama.cpp's own command line accepts (common/arg.cpp).
GGML_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q4_0": 2,
    "q4_1": 3,
    "iq4_nl": 20,
    "q5_0": 6,
    "q5_1": 7,
}


@functools.cache
def init_backend() -> None:
    """Initialise llama.cpp once per process and route its log to `logging`."""
    llama_cpp.llama_log_set(_log_callback, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


def last_error() -> str:
    """What llama.cpp last complained about, one line, or an empty string. Clears it."""
    text = "; ".join(_errors)
    _errors.clear()
    return text


def cache_type(name: str) -> int:
    """ggml's number for a K/V cache type. Raises InvalidOptionError for an unknown name."""
    try:
        return GGML_TYPES[name.lower()]
    except KeyError:
        known = ", ".join(GGML_TYPES)
        raise InvalidOptionError(f"unknown cache type {name!r}: choose one of {known}") from None


def _log(level: int, text: bytes, _user_data: Any) -> None:
    try:
        line = text.decode("utf-8", "replace").strip()
        if not line or line.strip(".") == "":
            return
        if level == 4:
            _errors.append(line)
        logger.log(_LEVELS.get(level, logging.DEBUG), "%s", line)
    except Exception:
        # An exception must not cross into C; a lost log line is the lesser harm.
        return


logger.addHandler(logging.NullHandler())
_log_callback = llama_cpp.llama_log_callback(_log)  # referenced for the life of the process
