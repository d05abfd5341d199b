"""Medians with an interval by bootstrap: how far another sweep of this kind may differ.

Pure numpy. Samples come in clusters, one for each prompt, since the repetitions of one prompt are
alike: clusters are drawn first, then samples within them. A bootstrap of fewer than five clusters
is too narrow by far; there the interval is the range of all samples, and of fewer than five samples
there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "median_interval"]

_N_DRAWS = 2000
_LEVEL = 0.95
_FEWEST = 5  # the range of so many samples holds their median 94 times in 100


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the 95 % interval around it; None where there are too few samples for one."""

    median: float
    low: float | None
    high: float | None


def median_interval(clusters: Sequence[Sequence[float]], *, seed: int = 0) -> Interval | None:
    """The median of all samples; None without any. The same samples give the same interval."""
    kept = [np.asarray(cluster, dtype=np.float64) for cluster in clusters if len(cluster)]
    if not kept:
        return None
    pooled = np.concatenate(kept)
    median = float(np.median(pooled))
    if len(pooled) < _FEWEST:
        return Interval(median, None, None)
    if len(kept) < _FEWEST:
        return Interval(median, float(pooled.min()), float(pooled.max()))
    rng = np.random.default_rng(seed)
    sizes = np.array([len(cluster) for cluster in kept])
    table = np.zeros((len(kept), sizes.max()))
    for row, cluster in zip(table, kept, strict=True):
        row[: len(cluster)] = cluster
    drawn = rng.integers(0, len(kept), (_N_DRAWS, len(kept)))
    within = rng.random((*drawn.shape, table.shape[1])) * sizes[drawn][..., np.newaxis]
    samples = table[drawn[..., np.newaxis], within.astype(np.intp)]
    medians = np.median(samples.reshape(_N_DRAWS, -1), axis=1)
    low, high = np.quantile(medians, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(median, float(low), float(high))
