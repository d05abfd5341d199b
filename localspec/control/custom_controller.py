"""Controllers that others wrote, made safe.

A controller cannot bend the law: it sees finished rounds and, before each draw, a confidence.
It could ask for more tokens than fit, or for batch sizes that exact mode forbids: both are cut
here. Answers that make no sense, and exceptions, raise ControllerError.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from localspec.decoding.controller import Controller, Pace, Source
from localspec.decoding.events import Round
from localspec.errors import ControllerError, LocalspecError

__all__ = ["GuardedController"]


_SOURCES = ("model", "ngram", "none")


class GuardedController:
    """A Controller around one that is not trusted.

    may_verify: batch sizes that may be used, None for all.
    """

    def __init__(
        self, inner: Controller, name: str, may_verify: Callable[[int], bool] | None = None
    ) -> None:
        self._inner: Any = inner
        self._name = name
        self._may_verify = may_verify

    def worth_reading(self, n_tokens: int, n_ahead: int) -> bool:
        """As the controller says; asked only where a draft model could read."""
        return bool(self._ask("worth_reading", n_tokens, n_ahead))

    def begin(self, depth: int, limit: int, *, may_trim: bool, n_replay: int = 0) -> Pace:
        """A pace that never exceeds the limit. n_replay is passed on where there is any."""
        more = {"n_replay": n_replay} if n_replay else {}
        inner = self._ask("begin", depth, limit, may_trim=may_trim, **more)
        return _GuardedPace(inner, max(0, limit), self._asker(inner), self._may_verify)

    def observe(self, round_: Round) -> None:
        """Passed on."""
        self._ask("observe", round_)

    def _ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._asker(self._inner)(method, *arguments, **named)

    def _asker(self, inner: Any) -> Callable[..., Any]:
        def ask(method: str, *arguments: Any, **named: Any) -> Any:
            try:
                return getattr(inner, method)(*arguments, **named)
            except LocalspecError:
                raise
            except Exception as error:
                raise ControllerError(
                    f"the controller {self._name}: {method} raised {type(error).__name__}: {error}"
                ) from error

        return ask


class _GuardedPace:
    def __init__(
        self,
        inner: Any,
        limit: int,
        ask: Callable[..., Any],
        may_verify: Callable[[int], bool] | None,
    ) -> None:
        self._limit = limit
        self._ask = ask
        self._may_verify = may_verify
        self._n = 0

    def source(self, match_length: int, n_available: int, n_missing: int | None) -> Source:
        found: Any = self._ask("source", match_length, n_available, n_missing)
        if found not in _SOURCES:
            raise ControllerError(f"source returned {found!r}: one of {', '.join(_SOURCES)}")
        if self._limit < 1 or (found == "model" and n_missing is None):
            return "none"
        chosen: Source = "none" if found == "ngram" and not n_available else found
        return chosen

    def another(self) -> bool:
        return self._n < self._limit and bool(self._ask("another"))

    def take(self, confidence: float) -> bool:
        if self._n >= self._limit or not self._ask("take", confidence):
            return False
        self._n += 1
        return True

    def copy(self, match_length: int, n_available: int) -> int:
        n = self._whole("copy", self._ask("copy", match_length, n_available))
        n = max(0, min(n, n_available, self._limit - self._n))
        self._n += n
        return n

    def trim(self) -> int:
        n = max(0, min(self._n, self._whole("trim", self._ask("trim"))))
        while n > 0 and self._may_verify is not None and not self._may_verify(n + 1):
            n -= 1
        return n

    def worth(self) -> tuple[float, ...]:
        try:
            return tuple(float(value) for value in self._ask("worth"))
        except (TypeError, ValueError) as error:
            raise ControllerError(f"worth returned no numbers: {error}") from None

    def decoded(self, n_tokens: int, depth: int, seconds: float) -> None:
        self._ask("decoded", n_tokens, depth, seconds)

    def _whole(self, method: str, found: Any) -> int:
        try:
            return operator.index(found)
        except TypeError:
            raise ControllerError(
                f"{method} returned {found!r}: a whole number is needed"
            ) from None
