"""How far a row of logits moves with the shape of the batches that made it, on this machine.

Kernels sum in another order at another batch size, and round keys and values to F16, so that no
fixed tolerance holds on every CPU: it is measured where the test runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.session.session import Session

__all__ = ["BatchNoise", "batch_noise", "log_softmax"]

ROOM = 4.0  # a few hundred rows are measured; other texts move by more
_FLOAT = 1e-5  # the last bits of a float32 logit, where the shapes here all agree
_N_HEAD, _N_ROWS = 64, 32  # a head in one batch, whose kernels differ most, and rows behind it


@dataclass(frozen=True, slots=True)
class BatchNoise:
    """ROOM times the largest moves seen: of a log-probability, and of a cumulative probability."""

    logprob: float
    chance: float


def batch_noise(session: Session) -> BatchNoise:
    """Rows of a random text over the byte vocabulary, in single decodes and in batches.

    Leaves the session's cache empty.
    """
    random = np.random.default_rng(7).integers(3, 259, _N_HEAD + _N_ROWS - 1)
    ids = [1, *random.tolist()]
    singles = _log_probs(session, ids, [1] * len(ids))
    fours = _log_probs(session, ids, [4] * (len(ids) // 4))
    behind_a_prompt = _log_probs(session, ids, [_N_HEAD, *[8] * (_N_ROWS // 8)])
    logprob = chance = 0.0
    for shaped, plain in ((fours, singles), (behind_a_prompt[_N_HEAD:], singles[_N_HEAD:])):
        logprob = max(logprob, _largest(shaped, plain))
        chances = (np.cumsum(np.exp(rows), axis=1) for rows in (shaped, plain))
        chance = max(chance, _largest(*chances))
    return BatchNoise(ROOM * max(logprob, _FLOAT), ROOM * max(chance, _FLOAT))


def log_softmax(row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Log-probabilities of one row of logits, in float64."""
    shifted = row.astype(np.float64) - row.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def _log_probs(session: Session, ids: list[int], sizes: list[int]) -> npt.NDArray[np.float64]:
    session.clear_cache()
    found, start = [], 0
    for size in sizes:
        rows = session._target.decode(ids[start : start + size], n_rows=size)
        found += [log_softmax(row) for row in rows]
        start += size
    session.clear_cache()
    return np.array(found)


def _largest(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    return float(np.abs(a - b).max())
