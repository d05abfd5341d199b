"""The settings that turn a row of logits into a distribution."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.errors import InvalidOptionError

__all__ = ["SamplingParams"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Names and defaults as in llama.cpp's common/common.h; penalties are off by default.

    temperature: 0 is greedy. top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
    penalty_last_n: how many of the last tokens (prompt included) the penalties look at.
    logit_bias: added to the logit of an id; -inf forbids it.

    Raises InvalidOptionError for a value outside its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, low=0.0)
        _check("top_k", self.top_k, low=0)
        _check("top_p", self.top_p, low=0.0, high=1.0)
        _check("min_p", self.min_p, low=0.0, high=1.0)
        _check("repeat_penalty", self.repeat_penalty, low=0.01, high=100.0)
        _check("presence_penalty", self.presence_penalty)
        _check("frequency_penalty", self.frequency_penalty)
        _check("penalty_last_n", self.penalty_last_n, low=0)
        for name in ("top_k", "penalty_last_n"):
            if not isinstance(getattr(self, name), numbers.Integral):
                raise InvalidOptionError(
                    f"{name} must be a whole number, not {getattr(self, name)!r}"
                )
        given: Any = self.logit_bias
        if not isinstance(given, Mapping) or not all(
            isinstance(token, numbers.Integral) and isinstance(bias, numbers.Real)
            for token, bias in given.items()
        ):
            raise InvalidOptionError(f"logit_bias maps token ids to numbers, not {given!r}")
        for token, bias in self.logit_bias.items():
            if math.isnan(bias) or bias == math.inf:
                raise InvalidOptionError(
                    f"logit_bias of token {token} is {bias}: give a number, or -inf to forbid it"
                )

    @property
    def greedy(self) -> bool:
        """True when the distribution is always one-hot."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def uses_history(self) -> bool:
        """True when earlier tokens change the distribution."""
        return self.penalty_last_n > 0 and (
            self.repeat_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


def _check(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidOptionError(f"{name} must be a number, not {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise InvalidOptionError(f"{name} is {value}: it must be finite")
    if low is not None and number < low:
        raise InvalidOptionError(f"{name} is {value}: it must be {low:g} or more")
    if high is not None and number > high:
        raise InvalidOptionError(f"{name} is {value}: it must be at most {high:g}")
