"""Mirostat (Basu et al. 2021): truncation that is steered to a wanted surprise, token by token.

After llama.cpp's src/llama-sampler.cpp, mirostat and mirostat_v2. The state `mu` is a function of
the tokens so far and their distributions, so that the law of the next token is known given the
text. Pure numpy.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError
from localspec.sampling.distribution import Distribution
from localspec.sampling.mask import Mask, within
from localspec.sampling.params import SamplingParams
from localspec.sampling.truncation import softmax

__all__ = ["first_mu", "mirostat_law", "next_mu"]

Logits = npt.NDArray[np.float32]

_M = 100  # most probable tokens from which version 1 estimates Zipf's exponent; common/sampling.cpp


def first_mu(params: SamplingParams) -> float:
    """Twice the wanted surprise."""
    return 2.0 * params.mirostat_tau


def next_mu(mu: float, law: Distribution, token: int, params: SamplingParams) -> float:
    """mu after `token` was drawn from `law`; mu itself for one that cannot be drawn."""
    p = law.prob(token)
    return mu - params.mirostat_eta * (-math.log2(p) - params.mirostat_tau) if p > 0.0 else mu


def mirostat_law(
    logits: Logits, params: SamplingParams, mu: float, mask: Mask | None = None
) -> Distribution:
    """The law of the next token. logits: float32, shape (n_vocab,), with the bias added.

    Raises EngineError when nothing is allowed.
    """
    ids = np.arange(len(logits), dtype=np.int32) if mask is None else within(mask, len(logits))
    ids = ids[logits[ids] > -np.inf]
    if not len(ids):
        raise EngineError("every token is forbidden at this position, by grammar or logit_bias")
    if not np.isfinite(logits[ids]).all():
        raise EngineError("the model returned NaN or inf among its logits: the file is damaged")
    if params.temperature == 0.0:
        return Distribution.one_hot(int(ids[logits[ids].argmax()]))
    values = np.asarray(logits[ids] / np.float32(params.temperature))
    if params.mirostat == 1:
        kept = _zipf_cut(values, mu, len(logits))
    else:
        kept = np.flatnonzero(-np.log2(softmax(values)) <= mu)
        kept = kept if len(kept) else np.array([values.argmax()])
    return Distribution.from_weights(ids[kept], softmax(values[kept]))


def _zipf_cut(values: Logits, mu: float, n_vocab: int) -> npt.NDArray[np.intp]:
    """Version 1: the k best, k from the estimated exponent and mu."""
    n_look = min(_M, len(values))
    order = np.argpartition(values, len(values) - n_look)[-n_look:]
    best = np.sort(values[order].astype(np.float64))[::-1]
    rank = np.arange(1, n_look)
    t = np.log((rank + 1) / rank)
    b = best[:-1] - best[1:]
    k = 1.0
    if len(t):
        s = float((t * b).sum() / (t * t).sum())
        k = _k_of(s, mu, n_vocab)
    n = min(max(int(k), 1), len(values))
    return np.argpartition(values, len(values) - n)[-n:]


def _k_of(s: float, mu: float, n_vocab: int) -> float:
    epsilon = s - 1.0
    try:
        k = ((epsilon * 2.0**mu) / (1.0 - n_vocab ** (-epsilon))) ** (1.0 / s)
    except (ZeroDivisionError, OverflowError):
        return float(n_vocab)
    return k if isinstance(k, float) and math.isfinite(k) else float(n_vocab)
