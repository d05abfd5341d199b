"""From a row of logits to the distribution that is sampled.

The order is llama.cpp's default chain (common/common.h, `samplers`): bias, penalties, DRY,
top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature last. A mask comes before all of them:
what it forbids is as if it were not in the vocabulary. Pure numpy; knows nothing of models.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError, NoTokenError
from localspec.sampling.distribution import Distribution
from localspec.sampling.dry import Dry
from localspec.sampling.mask import Mask, best_allowed, within
from localspec.sampling.params import SamplingParams
from localspec.sampling.truncation import (
    temperature_of,
    typical,
    within_sigmas,
    without_top_choices,
)

__all__ = [
    "adjusted",
    "distribution",
]

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

_FIRST_GUESS = 512  # candidates sorted before the whole row is, when nothing else bounds them


def distribution(
    logits: Logits,
    params: SamplingParams,
    history: Sequence[int],
    *,
    mask: Mask | None = None,
    dry: Dry | None = None,
    coin: float = 1.0,
) -> Distribution:
    """The law of the next token; mirostat, which needs its own state, is another function.

    logits: float32, shape (n_vocab,); it is not changed. history: all tokens before this
    position, prompt included; only the last `params.n_history` matter. mask: what a grammar allows.
    dry: needed for the DRY penalty. coin: uniform in [0, 1); XTC acts when it is below
    xtc_probability.
    Raises EngineError when the row holds NaN or +inf, or forbids every token.
    """
    raw = logits
    logits = adjusted(logits, params, history, dry)
    best = int(logits.argmax())
    _require_finite(float(logits[best]), raw)
    if params.takes_the_best:
        if mask is not None:
            best = _best_of(logits, best_allowed(logits, mask, 1))
        return Distribution.one_hot(best)

    ids, values = _candidates(logits, params, mask)
    top = float(values.max()) if len(values) else -math.inf
    if top == -math.inf:
        raise NoTokenError(_forbidden(mask))
    if params.typical_p < 1.0:
        keep = typical(values, params.typical_p)
        ids, values = ids[keep], values[keep]
        top = float(values.max())
    ids, values = _top_p_and_min_p(ids, values, top, params)
    if coin < params.xtc_probability:
        keep = without_top_choices(values, params.xtc_threshold)
        ids, values = ids[keep], values[keep]
        top = float(values.max())
    temperature = temperature_of(values, params)
    if temperature == 0.0:
        return Distribution.one_hot(_best_of(logits, ids))
    with np.errstate(over="ignore"):  # a tiny temperature: -inf, and a weight of 0
        weights = np.exp((values.astype(np.float64) - top) / temperature)
    return Distribution.from_weights(ids, weights)


def adjusted(
    logits: Logits, params: SamplingParams, history: Sequence[int], dry: Dry | None = None
) -> Logits:
    """The row with bias, penalties and DRY; the row itself when none is on."""
    if not params.logit_bias and (params.mirostat or not params.uses_history):
        return logits
    logits = logits.copy()
    with np.errstate(over="ignore", invalid="ignore"):  # told by distribution
        _add_bias(logits, params)
        if not params.mirostat:  # llama.cpp's chain for mirostat has no penalties
            _penalise(logits, params, history)
            if params.has_dry:
                assert dry is not None, "the DRY penalty needs its sequence breakers"
                dry.penalise(logits, history)
    return logits


def _add_bias(logits: Logits, params: SamplingParams) -> None:
    for token, bias in params.logit_bias.items():
        if 0 <= token < len(logits):
            logits[token] += bias


def _penalise(logits: Logits, params: SamplingParams, history: Sequence[int]) -> None:
    """llama.cpp's src/llama-sampler.cpp, penalties: divide or multiply, then subtract."""
    if not params.penalises:
        return
    counts = Counter(history[-params.penalty_last_n :])
    ids = np.array([token for token in counts if 0 <= token < len(logits)], np.int64)
    if not len(ids):
        return
    n = np.array([counts[int(token)] for token in ids], np.float32)
    values = logits[ids]
    values = np.where(values <= 0.0, values * params.repeat_penalty, values / params.repeat_penalty)
    logits[ids] = values - n * params.frequency_penalty - params.presence_penalty


def _candidates(logits: Logits, params: SamplingParams, mask: Mask | None) -> tuple[Ids, Logits]:
    """What top-n-sigma and top-k keep of the allowed tokens."""
    if params.top_n_sigma > 0.0:
        ids = np.arange(len(logits), dtype=np.int32) if mask is None else within(mask, len(logits))
        ids = ids[within_sigmas(logits[ids], params.top_n_sigma)]
        keep = _top_k(logits[ids], params.top_k)
        return ids[keep], logits[ids[keep]]
    if mask is None:
        ids = _top_k(logits, params.top_k)
    else:
        ids = best_allowed(logits, mask, params.top_k or len(logits))
    return ids, logits[ids]


def _top_k(logits: Logits, k: int) -> Ids:
    if 0 < k < len(logits):
        return np.argpartition(logits, len(logits) - k)[-k:].astype(np.int32)
    return np.arange(len(logits), dtype=np.int32)


def _best_of(logits: Logits, ids: Ids) -> int:
    """The lowest id among those with the largest logit."""
    if not len(ids):
        raise NoTokenError(_forbidden(Mask))
    values = logits[ids]
    top = values.max()
    if top == -math.inf:
        raise NoTokenError(_forbidden(Mask))
    return int(ids[values == top].min())


def _top_p_and_min_p(
    ids: Ids, values: Logits, top: float, params: SamplingParams
) -> tuple[Ids, Logits]:
    if params.min_p > 0.0:  # relative to the best, so it may come before top-p unchanged
        normaliser = _sum_exp(values, top)
        keep = values >= top + math.log(params.min_p)
        ids, values = ids[keep], values[keep]
    else:
        normaliser = _sum_exp(values, top) if params.top_p < 1.0 else 0.0
    if params.top_p < 1.0:
        ids, values = _top_p(ids, values, top, params.top_p * normaliser)
    return ids, values


def _sum_exp(values: Logits, top: float) -> float:
    with np.errstate(over="ignore"):  # -inf, and a weight of 0
        return float(np.exp(values - np.float32(top)).sum(dtype=np.float64))


def _top_p(ids: Ids, values: Logits, top: float, needed: float) -> tuple[Ids, Logits]:
    """The shortest prefix, best first, whose weights exp(l - top) reach `needed`."""
    for n in (_FIRST_GUESS, len(values)):
        if n < len(values):
            some = np.argpartition(values, len(values) - n)[-n:]
        else:
            some = np.arange(len(values))
        order = some[np.argsort(-values[some], kind="stable")]
        reached = np.cumsum(np.exp(values[order].astype(np.float64) - top))
        if n >= len(values) or reached[-1] >= needed:
            break
    last = int(np.searchsorted(reached, needed, side="left"))
    order = order[: last + 1]
    return ids[order], values[order]


def _require_finite(top: float, raw: Logits) -> None:
    if math.isfinite(top):
        return
    raw_top = float(raw.max())
    if top == -math.inf and raw_top > -math.inf:
        raise NoTokenError(_forbidden(None))
    if math.isfinite(raw_top):
        raise EngineError(
            f"logit_bias or a penalty is too large for this model: a logit became {top}"
        )
    raise EngineError(
        f"the model returned {top} among its logits: the file is damaged or this quantisation "
        "overflows on this device; try another file or n_gpu_layers=0"
    )


def _forbidden(mask: object) -> str:
    if mask is None:
        return "every token is forbidden at this position: loosen logit_bias"
    return (
        "every token is forbidden at this position: what the grammar allows here, no token of "
        "this vocabulary can spell, or logit_bias forbids it"
    )
