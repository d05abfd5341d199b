"""From a row of logits to the distribution that is sampled.

The order is llama.cpp's default chain (common/common.h, `samplers`): bias, penalties, top-k,
top-p, min-p, temperature last. Pure numpy; knows nothing of models or drafts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError
from localspec.sampling.distribution import Distribution
from localspec.sampling.params import SamplingParams

__all__ = ["distribution", "raw_probs"]

Logits = npt.NDArray[np.float32]

_FIRST_GUESS = 512  # candidates sorted before the whole row is, when nothing else bounds them


def distribution(logits: Logits, params: SamplingParams, history: Sequence[int]) -> Distribution:
    """The law of the next token.

    logits: float32, shape (n_vocab,); it is not changed. history: all tokens before this
    position, prompt included; only the last `penalty_last_n` matter.
    Raises EngineError when the row holds NaN or +inf, or forbids every token.
    """
    raw = logits
    if params.logit_bias or params.uses_history:
        logits = logits.copy()
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            _add_bias(logits, params)
            _penalise(logits, params, history)
    best = int(logits.argmax())
    top = float(logits[best])
    if not math.isfinite(top):
        raise EngineError(_bad_row(top, float(raw.max())))
    if params.greedy:
        return Distribution.one_hot(best)

    ids, values = _top_k(logits, params.top_k)
    if params.min_p > 0.0:  # relative to the best, so it may come before top-p unchanged
        normaliser = _sum_exp(values, top)
        keep = values >= top + math.log(params.min_p)
        ids, values = ids[keep], values[keep]
    else:
        normaliser = _sum_exp(values, top) if params.top_p < 1.0 else 0.0
    if params.top_p < 1.0:
        ids, values = _top_p(ids, values, top, params.top_p * normaliser)

    with np.errstate(over="ignore"):  # a tiny temperature: -inf, and a weight of 0
        weights = np.exp((values.astype(np.float64) - top) / params.temperature)
    return Distribution.from_weights(ids, weights)


def raw_probs(logits: Logits, tokens: Sequence[int]) -> list[float]:
    """Softmax of the unprocessed row at temperature 1, for some tokens."""
    if not len(tokens):
        return []
    top = logits.max()
    with np.errstate(over="ignore"):  # -inf, and a weight of 0
        total = np.exp(logits - top).sum(dtype=np.float64)
    chosen = logits[np.asarray(tokens, np.int64)].astype(np.float64)
    probs: list[float] = (np.exp(chosen - np.float64(top)) / total).tolist()
    return probs


def _add_bias(logits: Logits, params: SamplingParams) -> None:
    for token, bias in params.logit_bias.items():
        if 0 <= token < len(logits):
            logits[token] += bias


def _penalise(logits: Logits, params: SamplingParams, history: Sequence[int]) -> None:
    """llama.cpp's src/llama-sampler.cpp, penalties: divide or multiply, then subtract."""
    if not params.uses_history:
        return
    counts = Counter(history[-params.penalty_last_n :])
    ids = np.array([token for token in counts if 0 <= token < len(logits)], np.int64)
    if not len(ids):
        return
    n = np.array([counts[int(token)] for token in ids], np.float32)
    values = logits[ids]
    values = np.where(values <= 0.0, values * params.repeat_penalty, values / params.repeat_penalty)
    logits[ids] = values - n * params.frequency_penalty - params.presence_penalty


def _top_k(logits: Logits, k: int) -> tuple[npt.NDArray[np.int32], Logits]:
    if 0 < k < len(logits):
        ids = np.argpartition(logits, len(logits) - k)[-k:]
        return ids.astype(np.int32), logits[ids]
    return np.arange(len(logits), dtype=np.int32), logits


def _sum_exp(values: Logits, top: float) -> float:
    with np.errstate(over="ignore"):  # -inf, and a weight of 0
        return float(np.exp(values - np.float32(top)).sum(dtype=np.float64))


def _top_p(
    ids: npt.NDArray[np.int32], values: Logits, top: float, needed: float
) -> tuple[npt.NDArray[np.int32], Logits]:
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


def _bad_row(top: float, raw_top: float) -> str:
    if top == -math.inf and raw_top > -math.inf:
        return "every token is forbidden at this position: loosen logit_bias"
    if math.isfinite(raw_top):
        return f"logit_bias or a penalty is too large for this model: a logit became {top}"
    return (
        f"the model returned {top} among its logits: the file is damaged or this quantisation "
        "overflows on this device; try another file or n_gpu_layers=0"
    )
