"""Who guesses: a small model, or the text so far.

A drafter proposes tokens and says from which distribution each was drawn; the engine never asks
how. Stopping a draft looks at the prefix only, never at the token just drawn and then dropped:
that would bend the law of *rejection* and *block* (design: verification).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from localspec.llama.context import Context
from localspec.sampling.chain import distribution, raw_prob
from localspec.sampling.distribution import Distribution
from localspec.sampling.params import SamplingParams

__all__ = ["Draft", "Drafter", "ModelDrafter", "NgramDrafter"]


@dataclass(frozen=True, slots=True)
class Draft:
    """K proposed ids, the distribution q that each was drawn from, and its raw probability."""

    ids: list[int] = field(default_factory=list)
    q: list[Distribution] = field(default_factory=list)
    q_raw: list[float | None] = field(default_factory=list)


class Drafter(Protocol):
    """Anything that can guess what follows."""

    source: str

    def prepare(self, ids: Sequence[int]) -> None:
        """Read the prompt before the first round, so that prefill is timed apart."""

    def propose(self, ids: Sequence[int], n_draft: int) -> Draft:
        """Up to n_draft tokens to follow `ids`, the committed tokens."""

    def settle(self, ids: Sequence[int]) -> None:
        """Forget what did not become part of the committed `ids`."""


class ModelDrafter:
    """A small model sharing the target's vocabulary.

    Its cache always holds a prefix of the committed ids and is caught up in one batch; drafted
    tokens that were accepted are never decoded again.

    foreign_ids: ids that mean something else to the draft model; they are neither proposed nor
    fed, and text up to the last of them is left out of the draft's context. They are masked
    before the draw, for a token dropped after it would bend the law.
    rng: draws the draft from q; None takes the most probable token, and q is one-hot.
    """

    source = "model"

    def __init__(
        self,
        context: Context,
        params: SamplingParams,
        *,
        n_vocab_target: int,
        foreign_ids: Collection[int] = (),
        rng: np.random.Generator | None = None,
    ) -> None:
        self._context = context
        self._params = params
        self._greedy_params = replace(params, temperature=0.0)
        self._n_shared = min(context.n_vocab, n_vocab_target)
        self._foreign_ids = frozenset(foreign_ids)
        self._masked = np.array([i for i in foreign_ids if i < self._n_shared], np.int64)
        self._rng = rng
        self._offset = 0
        self._n_checked = 0

    def prepare(self, ids: Sequence[int]) -> None:
        """Decode the prompt, its last token apart."""
        known = ids[self._skip_foreign(ids) :][:-1]
        if len(known) <= self._context.n_ctx:
            n_kept = self._context.keep_prefix(known)
            self._context.decode(known[n_kept:], n_rows=0)

    def propose(self, ids: Sequence[int], n_draft: int) -> Draft:
        """Catch up with `ids`, then decode one token after another.

        Ends early at the draft's own context limit, after an end-of-generation token, and where
        the best guess is an id that the two models spell differently. Raises what
        Context.decode raises.
        """
        draft = Draft()
        known = ids[self._skip_foreign(ids) :]
        room = self._context.n_ctx - len(known) + 1
        n_draft = min(n_draft, room)
        if not known or n_draft < 1:
            return draft
        n_kept = self._context.keep_prefix(known[:-1])
        pending = list(known[n_kept:])
        for i in range(n_draft):
            row = self._context.decode(pending, n_rows=1)[0][: self._n_shared]
            if self._foreign_ids and int(row.argmax()) in self._foreign_ids:
                break
            token, q = self._draw(row, [*ids[-self._params.penalty_last_n :], *draft.ids])
            draft.ids.append(token)
            draft.q.append(q)
            draft.q_raw.append(raw_prob(row, token))
            if i + 1 == n_draft or self._context.model.vocabulary.is_eog(token):
                break
            pending = [token]
        return draft

    def settle(self, ids: Sequence[int]) -> None:
        """Cut the cache to what is committed, the last token apart."""
        self._context.keep_prefix(ids[self._skip_foreign(ids) :][:-1])

    def _draw(
        self, row: npt.NDArray[np.float32], history: Sequence[int]
    ) -> tuple[int, Distribution]:
        if len(self._masked):
            row = row.copy()
            row[self._masked] = -np.inf
        if self._rng is not None:
            q = distribution(row, self._params, history)
            return q.sample(self._rng.random()), q
        q = distribution(row, self._greedy_params, history)
        return int(q.ids[0]), q

    def _skip_foreign(self, ids: Sequence[int]) -> int:
        """Where the text begins that the draft model can read."""
        if len(ids) < self._n_checked:
            self._offset = self._n_checked = 0
        for i in range(self._n_checked, len(ids)):
            if ids[i] >= self._n_shared or ids[i] in self._foreign_ids:
                self._offset = i + 1
        self._n_checked = len(ids)
        return self._offset


class NgramDrafter:
    """What followed the last time: the longest suffix of the text that occurred before.

    Indexes every pair of neighbouring tokens by where it ends; among the longest matches the
    most recent wins. Costs no model time. Deterministic, so q is one-hot.
    """

    source = "ngram"
    min_match = 2
    max_match = 32
    max_candidates = 64

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._ends: dict[tuple[int, int], list[int]] = {}

    def prepare(self, ids: Sequence[int]) -> None:
        """Index the prompt."""
        self._index(ids)

    def propose(self, ids: Sequence[int], n_draft: int) -> Draft:
        """The tokens after the best earlier occurrence; empty when there is none."""
        self._index(ids)
        if len(ids) < self.min_match + 1:
            return Draft()
        best_length, best_end = 0, -1
        ends = self._ends.get((ids[-2], ids[-1]), [])
        for end in reversed(ends[-self.max_candidates - 1 :]):
            if end == len(ids):
                continue
            length = self._match_length(end)
            if length > best_length:
                best_length, best_end = length, end
        if best_length < self.min_match:
            return Draft()
        tokens = list(self._ids[best_end : best_end + n_draft])
        return Draft(tokens, [Distribution.one_hot(t) for t in tokens], [None] * len(tokens))

    def settle(self, ids: Sequence[int]) -> None:
        """Nothing to forget: only committed ids are indexed."""

    def _index(self, ids: Sequence[int]) -> None:
        for end in range(max(2, len(self._ids) + 1), len(ids) + 1):
            self._ends.setdefault((ids[end - 2], ids[end - 1]), []).append(end)
        self._ids.extend(ids[len(self._ids) :])

    def _match_length(self, end: int) -> int:
        n, total = 0, len(self._ids)
        while n < min(end, self.max_match) and self._ids[end - 1 - n] == self._ids[total - 1 - n]:
            n += 1
        return n
