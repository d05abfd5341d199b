"""Both models read a finished answer: what each would have said at every position of it.

Teacher-forced, in batches, outside any timing. From this a replay can tell what another draft
length would have done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from localspec.llama.context import Context
from localspec.sampling.raw_law import Top

__all__ = ["Position", "read_positions"]


@dataclass(frozen=True, slots=True)
class Position:
    """One token of the answer, and both models' laws before it. q is None without a draft."""

    token: int
    p: Top
    q: Top | None


def read_positions(
    target: Context,
    draft: Context | None,
    ids: Sequence[int],
    n_prompt: int,
    is_readable: Callable[[int], bool] | None = None,
) -> Iterator[Position]:
    """The positions n_prompt … len(ids) − 1 of `ids`. Both contexts return several rows.

    is_readable: whether the draft model knows an id; its view begins behind the last one of the
    prompt that it does not know, and ends before the first such one of the answer. Leaves the
    target's cache holding a prefix of `ids`. Raises what Context.decode raises.
    """
    target.keep_prefix(ids[: n_prompt - 1])
    target.decode(ids[len(target.ids) : n_prompt - 1], n_rows=0)
    start, end = _view(draft, ids, n_prompt, is_readable)
    if draft is not None and start < n_prompt:
        draft.clear()
        draft.decode(ids[start : n_prompt - 1], n_rows=0)
    n_rows = target.max_rows if draft is None else min(target.max_rows, draft.max_rows)
    for at in range(n_prompt, len(ids), n_rows):
        tokens = ids[at : at + n_rows]
        fed = ids[at - 1 : at - 1 + len(tokens)]
        p = [Top.of(row) for row in target.decode(fed, n_rows=len(fed))]
        known = fed[: max(0, end - (at - 1))]
        q: list[Top | None] = [None] * len(fed)
        if draft is not None and known:
            rows = draft.decode(known, n_rows=len(known))
            q[: len(known)] = [Top.of(row[: target.n_vocab]) for row in rows]
        for token, p_i, q_i in zip(tokens, p, q, strict=True):
            yield Position(token, p_i, q_i)


def _view(
    draft: Context | None,
    ids: Sequence[int],
    n_prompt: int,
    is_readable: Callable[[int], bool] | None,
) -> tuple[int, int]:
    """Where the draft's reading begins and ends; nothing is read when it would begin too late."""
    if draft is None:
        return n_prompt, 0
    strange = (
        [] if is_readable is None else [i for i, token in enumerate(ids) if not is_readable(token)]
    )
    start = max((i + 1 for i in strange if i < n_prompt), default=0)
    start = max(start, len(ids) - draft.n_ctx)
    end = min((i for i in strange if i >= n_prompt), default=len(ids))
    return (start, end) if start < n_prompt else (n_prompt, 0)
