"""DRY ("don't repeat yourself"): a penalty that grows with the length of a repeated passage.

After llama.cpp's src/llama-sampler.cpp, which took it from koboldcpp (pi6am). Pure numpy; the
sequence breakers come as token ids.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from localspec.llama.vocabulary import Vocabulary
from localspec.sampling.params import SamplingParams

__all__ = ["Breakers", "Dry", "sequence_breakers"]

# token -> the tails behind it that complete a breaker; () where the token holds a whole one
Breakers = Mapping[int, Sequence[tuple[int, ...]]]

_FLOAT_MAX_LOG = 88.7228391


class Dry:
    """The penalty for one set of options and one vocabulary's breakers."""

    def __init__(self, params: SamplingParams, breakers: Breakers) -> None:
        self._params = params
        self._breakers = breakers
        base = params.dry_base
        self._max_exponent = int(_FLOAT_MAX_LOG / math.log(base)) if base > 1.000001 else 0

    def penalise(self, logits: npt.NDArray[np.float32], history: Sequence[int]) -> None:
        """Lower, in place, the logits of tokens that would make a repeated passage longer."""
        n = self._params.dry_penalty_last_n
        recent = np.asarray(history[-n:] if n > 0 else history, np.int64)
        for token, length in self._repeats(recent).items():
            if token >= len(logits) or () in self._breakers.get(token, ()):
                continue
            exponent = length - self._params.dry_allowed_length
            if self._max_exponent > 0:
                exponent = min(exponent, self._max_exponent)
            penalty = self._params.dry_multiplier * self._params.dry_base**exponent
            logits[token] -= np.float32(penalty)

    def _repeats(self, recent: npt.NDArray[np.int64]) -> dict[int, int]:
        """How long a passage each token would go on repeating, where that is long enough."""
        least = self._params.dry_allowed_length
        if len(recent) <= least:
            return {}
        limit = self._limit(recent)
        if limit < least:
            return {}
        if self._max_exponent > 0:  # longer ones are penalised alike
            limit = min(limit, least + self._max_exponent)
        last = len(recent) - 1
        ends = np.arange(last)  # where an earlier passage ends that looks like the end of the text
        found: dict[int, int] = {}
        for length in range(limit + 1):
            if length >= least:
                for token in np.unique(recent[ends + 1]).tolist():
                    found[token] = length
            ends = ends[ends >= length]
            ends = ends[recent[ends - length] == recent[last - length]]
            if not len(ends):
                break
        return found

    def _limit(self, recent: npt.NDArray[np.int64]) -> int:
        """Tokens since the last sequence breaker."""
        if not self._breakers:
            return len(recent)
        for i in range(len(recent)):
            tails = self._breakers.get(int(recent[-1 - i]))
            if tails is None:
                continue
            longest = max((len(tail) for tail in tails if _follows(recent, i, tail)), default=-1)
            if longest >= 0:
                return i - longest
        return len(recent)


def _follows(recent: npt.NDArray[np.int64], i: int, tail: tuple[int, ...]) -> bool:
    """Is the token i from the end followed by `tail`?"""
    start = len(recent) - i
    return len(tail) <= i and recent[start : start + len(tail)].tolist() == list(tail)


_MAX_BYTES, _MAX_TAIL = 40, 20


def sequence_breakers(
    vocabulary: Vocabulary, texts: Sequence[str]
) -> dict[int, list[tuple[int, ...]]]:
    """token -> tails: () where it holds a whole breaker; else what completes one behind it."""
    words = [vocabulary.spelled(token) for token in range(vocabulary.n_tokens)]
    found: dict[int, list[tuple[int, ...]]] = {}
    for text in texts:
        breaker = text.encode()[:_MAX_BYTES]
        for token, word in enumerate(words):
            if breaker in word:
                found.setdefault(token, []).append(())
                continue
            for n in _overlaps(word, breaker):
                tail = tuple(_tail(vocabulary, breaker[n:]))
                if tail and tail not in found.get(token, ()):
                    found.setdefault(token, []).append(tail)
    return found


def _overlaps(word: bytes, breaker: bytes) -> list[int]:
    """How many bytes of the breaker end the word, for each way that they can."""
    return [n for n in range(1, min(len(word), len(breaker))) if word.endswith(breaker[:n])] + (
        [len(word)] if len(word) < len(breaker) and breaker.startswith(word) and word else []
    )


def _tail(vocabulary: Vocabulary, rest: bytes) -> list[int]:
    try:
        return vocabulary.spell(rest.decode("utf-8").encode())[:_MAX_TAIL]
    except UnicodeDecodeError:  # the word ends within a character
        return []
