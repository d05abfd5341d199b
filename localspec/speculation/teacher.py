"""Both models read a finished answer: what each would have said at every position of it.

Teacher-forced, in batches, outside any timing. From this a replay can tell what another draft
length would have done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.llama.context import Context

__all__ = ["TOP", "Position", "Top", "read_positions"]

TOP = 64


@dataclass(frozen=True, slots=True)
class Top:
    """The most probable tokens of one row, softmax of the unprocessed logits at temperature 1.

    ids: int, most probable first, up to 64. probs: theirs. rest: the mass of all others.
    """

    ids: tuple[int, ...]
    probs: tuple[float, ...]
    rest: float

    @classmethod
    def of(cls, row: npt.NDArray[np.float32]) -> Top:
        """From logits, float32, shape (n_vocab,)."""
        top = float(row.max())
        total = float(np.exp(row - np.float32(top)).sum(dtype=np.float64))
        n = min(TOP, len(row))
        found = np.argpartition(row, len(row) - n)[-n:]
        found = found[np.argsort(-row[found], kind="stable")]
        probs = np.exp(row[found].astype(np.float64) - top) / total
        return cls(tuple(found.tolist()), tuple(probs.tolist()), max(0.0, 1.0 - float(probs.sum())))

    def prob(self, token: int) -> float:
        """Probability of a token; 0.0 when it is not among the kept ones."""
        return self.probs[self.ids.index(token)] if token in self.ids else 0.0


@dataclass(frozen=True, slots=True)
class Position:
    """One token of the answer, and both models' laws before it. q is None without a draft."""

    token: int
    p: Top
    q: Top | None


def read_positions(
    target: Context, draft: Context | None, ids: Sequence[int], n_prompt: int, n_shared: int
) -> Iterator[Position]:
    """The positions n_prompt … len(ids) − 1 of `ids`. Both contexts return several rows.

    Leaves both caches holding a prefix of `ids`. Raises what Context.decode raises.
    """
    n_rows = target.max_rows if draft is None else min(target.max_rows, draft.max_rows)
    for context in (target, draft):
        if context is not None:
            context.keep_prefix(ids[: n_prompt - 1])
            context.decode(ids[len(context.ids) : n_prompt - 1], n_rows=0)
    for start in range(n_prompt, len(ids), n_rows):
        tokens = ids[start : start + n_rows]
        fed = ids[start - 1 : start - 1 + len(tokens)]
        p = [Top.of(row) for row in target.decode(fed, n_rows=len(fed))]
        q: list[Top | None] = [None] * len(fed)
        if draft is not None:
            q = [Top.of(row[:n_shared]) for row in draft.decode(fed, n_rows=len(fed))]
        for token, p_i, q_i in zip(tokens, p, q, strict=True):
            yield Position(token, p_i, q_i)
