"""Where randomness comes from: one seed, and uniform numbers in [0, 1) drawn from it.

*match* draws the number of position i from (seed, i) alone, so that the text depends neither
on the draft length nor on the drafter. *rejection* and *block* draw one after another.
"""

from __future__ import annotations

import numbers
import secrets
from typing import Any

import numpy as np

from localspec.errors import InvalidOptionError

__all__ = ["position_coin", "position_uniform", "resolve_seed", "sequential_uniforms"]


def resolve_seed(seed: int | None) -> int:
    """The seed itself, or a fresh one from the operating system for None and −1."""
    if seed is None or seed == -1:
        return secrets.randbits(32)
    given: Any = seed
    whole = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    if not whole or not 0 <= seed < 2**64:
        raise InvalidOptionError(f"seed is {seed!r}: give a whole number from 0 to 2**64 - 1")
    return int(seed)


def position_uniform(seed: int, position: int) -> float:
    """The uniform number of one position of the answer; a counter-based generator (Philox)."""
    return float(_position_generator(seed, position).random())


def position_coin(seed: int, position: int) -> float:
    """A second number of that position, independent of the first: the coin of XTC."""
    return float(_position_generator(seed, position).random(2)[1])


def sequential_uniforms(seed: int) -> np.random.Generator:
    """A generator for the draft's draws, the coins and the corrections, in that order."""
    return np.random.Generator(np.random.PCG64(seed))


def _position_generator(seed: int, position: int) -> np.random.Generator:
    """Philox makes four numbers for each value of its counter, so two are a position's own."""
    return np.random.Generator(np.random.Philox(key=seed, counter=position))
