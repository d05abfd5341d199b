"""The settings that turn a row of logits into a distribution."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.errors import InvalidOptionError

__all__ = ["SamplingParams"]

_WHOLE = ("top_k", "penalty_last_n", "dry_allowed_length", "dry_penalty_last_n", "mirostat")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Names and defaults as in llama.cpp's common/common.h; penalties are off by default.

    temperature: 0 is greedy. top_k: 0 is off. top_p, typical_p: 1 is off. min_p: 0 is off.
    top_n_sigma: keeps logits within so many standard deviations of the best; -1 is off.
    penalty_last_n: how many of the last tokens (prompt included) the penalties look at.
    dynatemp_range: the temperature moves this far up and down with the entropy; 0 is off.
    xtc_probability, xtc_threshold: how often all but the least probable of the tokens of at least
    that probability are left out; 0 is off. dry_*: the DRY penalty on tokens that would go on
    repeating a passage longer than dry_allowed_length, at most dry_penalty_last_n tokens back
    (-1: all), a passage ending at each of dry_sequence_breakers; a multiplier of 0 is off.
    mirostat: 1 or 2 keeps the surprise near mirostat_tau, learning by mirostat_eta, in place of
    the truncations and penalties; 0 is off. logit_bias: added to the logit of an id; -inf
    forbids it.

    Raises InvalidOptionError for a value outside its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, low=0.0)
        _check("top_k", self.top_k, low=0)
        _check("top_p", self.top_p, low=0.0, high=1.0)
        _check("min_p", self.min_p, low=0.0, high=1.0)
        _check("typical_p", self.typical_p, low=0.0, high=1.0)
        _check("top_n_sigma", self.top_n_sigma)
        _check("dynatemp_range", self.dynatemp_range, low=0.0)
        _check("dynatemp_exponent", self.dynatemp_exponent, low=0.0)
        _check("xtc_probability", self.xtc_probability, low=0.0, high=1.0)
        _check("xtc_threshold", self.xtc_threshold, low=0.0, high=1.0)
        _check("repeat_penalty", self.repeat_penalty, low=0.01, high=100.0)
        _check("presence_penalty", self.presence_penalty)
        _check("frequency_penalty", self.frequency_penalty)
        _check("penalty_last_n", self.penalty_last_n, low=0)
        _check("dry_multiplier", self.dry_multiplier, low=0.0)
        _check("dry_base", self.dry_base, low=1.0)
        _check("dry_allowed_length", self.dry_allowed_length, low=0)
        _check("dry_penalty_last_n", self.dry_penalty_last_n, low=-1)
        _check("mirostat", self.mirostat, low=0, high=2)
        _check("mirostat_tau", self.mirostat_tau, low=0.0)
        _check("mirostat_eta", self.mirostat_eta, low=0.0)
        for name in _WHOLE:
            if not isinstance(getattr(self, name), numbers.Integral):
                raise InvalidOptionError(
                    f"{name} must be a whole number, not {getattr(self, name)!r}"
                )
        self._check_breakers()
        self._check_bias()

    def _check_breakers(self) -> None:
        given: Any = self.dry_sequence_breakers
        breakers = (given,) if isinstance(given, str) else given
        if not isinstance(breakers, (list, tuple)) or not all(
            isinstance(text, str) and text for text in breakers
        ):
            raise InvalidOptionError("dry_sequence_breakers takes strings that are not empty")
        object.__setattr__(self, "dry_sequence_breakers", tuple(breakers))

    def _check_bias(self) -> None:
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
        """True when the distribution is always one-hot (given the coin of XTC)."""
        if self.mirostat:
            return self.temperature == 0.0
        return (self.temperature == 0.0 and self.dynatemp_range == 0.0) or self.top_k == 1

    @property
    def takes_the_best(self) -> bool:
        """True when the token with the largest logit is always the one."""
        cuts_the_best = self.typical_p < 1.0 or self.xtc_probability > 0.0
        return self.greedy and (self.top_k == 1 or not cuts_the_best)

    @property
    def needs_match(self) -> str | None:
        """The sampler without a closed distribution given the text, so that *match* verifies."""
        if self.mirostat:
            return f"mirostat {self.mirostat}"
        return "XTC" if self.xtc_probability > 0.0 and self.xtc_threshold <= 0.5 else None

    @property
    def penalises(self) -> bool:
        """True when a penalty changes the logits of earlier tokens."""
        return self.penalty_last_n > 0 and (
            self.repeat_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def has_dry(self) -> bool:
        """True when the DRY penalty is on."""
        return self.dry_multiplier != 0.0 and self.dry_penalty_last_n != 0

    @property
    def uses_history(self) -> bool:
        """True when earlier tokens change the distribution."""
        return self.penalises or self.has_dry

    @property
    def n_history(self) -> int | None:
        """How many of the last tokens matter; None for all of them."""
        n_dry = self.dry_penalty_last_n if self.has_dry else 0
        return None if n_dry < 0 else max(n_dry, self.penalty_last_n if self.penalises else 0)


def _check(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidOptionError(f"{name} must be a number, not {value!r}")
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond 1.8e308
        raise InvalidOptionError(f"{name} is too large: it must be finite") from None
    if not math.isfinite(number):
        raise InvalidOptionError(f"{name} is {value}: it must be finite")
    if low is not None and number < low:
        raise InvalidOptionError(f"{name} is {value}: it must be {low:g} or more")
    if high is not None and number > high:
        raise InvalidOptionError(f"{name} is {value}: it must be at most {high:g}")
