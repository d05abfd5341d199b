"""The rarer transforms of the chain, each on the logits of the candidates that are left.

After llama.cpp's src/llama-sampler.cpp: which candidates stay, as a boolean or index array.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from localspec.sampling.params import SamplingParams

__all__ = ["softmax", "temperature_of", "typical", "within_sigmas", "without_top_choices"]

Logits = npt.NDArray[np.float32]
Kept = npt.NDArray[np.intp]


def softmax(values: Logits, temperature: float = 1.0) -> npt.NDArray[np.float64]:
    """Probabilities of the candidates, float64."""
    weights = np.exp((values.astype(np.float64) - float(values.max())) / temperature)
    return np.asarray(weights / weights.sum())


def within_sigmas(values: Logits, n: float) -> Kept:
    """Top-nσ (Tang et al. 2024): those within n standard deviations of the best."""
    finite = np.flatnonzero(values > -np.inf)
    found = values[finite].astype(np.float64)
    if not len(found):
        return finite
    return np.asarray(finite[found >= found.max() - n * found.std()])


def typical(values: Logits, p: float) -> Kept:
    """Locally typical (Meister et al. 2022): those nearest to the entropy, up to mass p.

    The most probable token may be among those left out; one stays at least.
    """
    probs = softmax(values)
    surprise = -np.log(np.maximum(probs, np.finfo(np.float64).tiny))
    entropy = float((probs * surprise).sum())
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    reached = np.cumsum(probs[order])
    last = int(np.searchsorted(reached, p, side="right"))
    return np.asarray(order[: last + 1])


def without_top_choices(values: Logits, threshold: float) -> Kept:
    """XTC: of the tokens of at least `threshold` all go but the least probable."""
    everything = np.arange(len(values))
    if threshold > 0.5 or len(values) < 2:
        return everything
    order = np.argsort(-values, kind="stable")
    n_top = int((softmax(values) >= threshold).sum())
    return np.asarray(order[n_top - 1 :]) if n_top > 1 else everything


def temperature_of(values: Logits, params: SamplingParams) -> float:
    """The temperature here: with a range (entropy sampling) it grows with the entropy."""
    if params.dynatemp_range == 0.0 or len(values) < 2:
        return params.temperature if params.dynatemp_range == 0.0 else 1.0
    probs = softmax(values)
    some = probs[probs > 0.0]
    share = float(-(some * np.log(some)).sum()) / math.log(len(values))
    low = max(0.0, params.temperature - params.dynatemp_range)
    high = params.temperature + params.dynatemp_range
    return float(low + (high - low) * max(0.0, share) ** params.dynatemp_exponent)
