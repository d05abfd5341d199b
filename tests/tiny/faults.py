"""Exceptions, error codes and aborts at any chosen native call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llama_cpp
import pytest

from localspec.llama.context import CancelFlag

__all__ = ["NATIVE", "Boom", "Faults"]

NATIVE = (
    "llama_decode",
    "llama_synchronize",
    "llama_get_logits_ith",
    "llama_memory_seq_rm",
    "llama_memory_clear",
    "llama_state_seq_get_size_ext",
    "llama_state_seq_get_data_ext",
    "llama_state_seq_set_data_ext",
)


class Boom(Exception):
    """What a fault raises."""


class Faults:
    """Counts native calls, and spoils the one that was armed, once.

    how: `before` and `after` raise Boom around the call, `abort` sets the cancel flag for it; an
    int is returned in place of llama_decode's code, without the call (`code`) or after it
    (`late`).
    """

    def __init__(self, patch: pytest.MonkeyPatch, functions: tuple[str, ...] = NATIVE) -> None:
        self.n_calls = 0
        self._at: int | None = None
        self._how: Any = None
        self._flag: CancelFlag | None = None
        for name in functions:
            patch.setattr(llama_cpp, name, self._wrap(getattr(llama_cpp, name)))

    def arm(self, at: int, how: Any, flag: CancelFlag | None = None) -> None:
        """Spoil the call number `at` from now on."""
        self.n_calls, self._at, self._how, self._flag = 0, at, how, flag

    def disarm(self) -> bool:
        """Let all calls be; True when the armed one was reached."""
        reached = self._at is not None and self.n_calls > self._at
        self.n_calls, self._at = 0, None
        return reached

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            mine = self.n_calls == self._at
            self.n_calls += 1
            if not mine:
                return function(*arguments)
            if self._how == "before":
                raise Boom
            if self._how == "abort":
                assert self._flag is not None
                self._flag.set()
                return function(*arguments)
            if self._how == "after":
                function(*arguments)
                raise Boom
            kind, code = self._how
            if kind == "late":
                function(*arguments)
            return code

        return call
