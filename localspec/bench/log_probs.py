"""A mean over scored tokens and how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError

__all__ = [
    "Distance",
    "Estimate",
    "Stored",
    "decode",
    "distance",
    "encode",
    "log_softmax",
    "row_words",
]


@dataclass(frozen=True, slots=True)
class Estimate:
    """error: one standard error, tokens taken as independent."""

    value: float
    error: float

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Estimate:
        """The mean of at least two values, shape (n,); its error is σ / sqrt(n − 1), σ over n."""
        array = np.asarray(values, np.float64)
        return cls(float(array.mean()), float(array.std() / math.sqrt(len(array) - 1)))

    @classmethod
    def perplexity(cls, nll: npt.ArrayLike) -> Estimate:
        """exp of the mean negative log-likelihood (nats); the error by exp's slope."""
        mean = cls.of(nll)
        value = math.exp(min(mean.value, 700.0))  # a float holds no more
        return cls(value, value * mean.error)


_HEAD = 4  # words
_DEPTH = 16.0  # nats below the top that codes reach
_LAST_CODE = 65535
_NEGLIGIBLE = -16.0  # ln p; llama-perplexity leaves the rest out of its sum

Row = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Stored:
    """A decoded row. log_p: float32, shape (n,). is_floor: True where p may be less than that."""

    log_p: Row
    is_floor: npt.NDArray[np.bool_]

    def only(self, ids: slice | npt.NDArray[np.intp]) -> Stored:
        """The law given that one of `ids` comes: the others are as if they did not exist."""
        log_p = self.log_p[ids]
        return Stored(log_softmax(log_p), self.is_floor[ids])


@dataclass(frozen=True, slots=True)
class Distance:
    """Of q from p at one position.

    kl: Σ p ln(p/q) in nats, over ids with ln p > −16. overlap: Σ min(p, q), what speculative
    sampling accepts. same_top: the most probable id is the same.
    """

    kl: float
    overlap: float
    same_top: bool


def log_softmax(row: Row) -> Row:
    """ln p from logits, both float32, shape (n,). Raises EngineError for logits that are NaN."""
    top = float(row.max())
    if not math.isfinite(top):
        raise EngineError(
            "the model computed logits that are no numbers: the file may be damaged, or its quant "
            "too coarse; try another quant, or flash_attn off"
        )
    shifted = row - np.float32(top)
    total = float(np.exp(shifted).sum(dtype=np.float64))
    shifted -= np.float32(math.log(total))
    log_p: Row = shifted
    return log_p


def row_words(n_vocab: int) -> int:
    """uint16 words of a stored row: even, as upstream pads it."""
    return _HEAD + 2 * ((n_vocab + 1) // 2)


def encode(log_p: Row, words: Words) -> None:
    """Fill `words`, shape (row_words(n),), from ln p, shape (n,)."""
    top = log_p.max()
    low = max(log_p.min(), top - np.float32(_DEPTH))
    step = np.float32((top - low) / _LAST_CODE)
    words[:_HEAD].view(np.float32)[:] = step, low
    words[_HEAD:] = 0
    if step:
        above = np.maximum(log_p, low) - low
        words[_HEAD : _HEAD + len(log_p)] = np.rint(above * (np.float32(1) / step))


def decode(words: Words, n_vocab: int) -> Stored:
    """The opposite of encode, to within half a step: 0.00012 nats."""
    step, low = words[:_HEAD].view(np.float32)
    codes = words[_HEAD : _HEAD + n_vocab]
    return Stored(codes * step + low, codes == 0)


def distance(p: Stored, log_q: Row) -> Distance:
    """Of the row log_q, float32 (n,), from a stored p over the same ids."""
    terms = np.exp(p.log_p)
    overlap = np.minimum(terms, np.exp(log_q))
    overlap *= ~p.is_floor  # much faster than an indexed assignment
    terms *= p.log_p - log_q
    terms *= p.log_p > _NEGLIGIBLE
    return Distance(
        float(terms.sum(dtype=np.float64)),
        float(overlap.sum(dtype=np.float64)),
        bool(p.log_p.argmax() == log_q.argmax()),
    )
