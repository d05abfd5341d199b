"""A small model that guesses for the large one, as far as the pace allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError
from localspec.sampling.chain import distribution, raw_probs
from localspec.sampling.distribution import Distribution
from localspec.sampling.params import SamplingParams
from localspec.sampling.top import Top
from localspec.speculation.controller import Pace
from localspec.speculation.copies import Copies, Running
from localspec.speculation.draft import Draft
from localspec.speculation.draft_cache import DraftCache
from localspec.speculation.draft_temperature import DraftTemperature

__all__ = ["ModelDrafter"]


class ModelDrafter:
    """A small model sharing the target's vocabulary.

    rng: draws the draft from q, at the draft temperature; None takes the most probable token,
    and q is one-hot. Foreign ids are masked before the draw, for a token dropped after it would
    bend the law. n_alternatives: how many of its most probable tokens are kept for display.
    """

    def __init__(
        self,
        cache: DraftCache,
        params: SamplingParams,
        *,
        rng: np.random.Generator | None = None,
        temperature: DraftTemperature | None = None,
        n_alternatives: int = 0,
    ) -> None:
        self.cache = cache
        self.temperature = temperature
        self._params = params
        self._greedy_params = replace(params, temperature=0.0)
        self._masked = np.array([i for i in cache.foreign_ids if i < cache.n_shared], np.int64)
        self._rng = rng
        self._n_alternatives = n_alternatives

    @property
    def is_random(self) -> bool:
        """True when the next draft is drawn at random."""
        return self._rng is not None and not (self.temperature and self.temperature.is_one_hot)

    def draft(self, ids: Sequence[int], draft: Draft, pace: Pace, copies: Copies | None) -> None:
        """Append guesses to `draft`, and a copied span where the text behind them is known.

        Ends early at the draft's own context limit, after an end-of-generation token, and where
        the best guess is an id that the two models spell differently.
        """
        running: Running | None = None
        context = self.cache.context
        while pace.another():
            started = perf_counter()
            if draft.ids:
                if self.cache.room < 1:
                    return
                row, n_read = self.cache.step(draft.ids[-1]), 1
            else:
                n_before = len(context.ids)
                row = self.cache.read(ids)
                n_read = max(1, len(context.ids) - n_before)
            best = int(row.argmax())
            if not math.isfinite(row[best]):
                raise EngineError(
                    f"the draft model {context.model.path.name} returned {row[best]} among its "
                    "logits: its file is damaged or overflows on this device; go on without it "
                    "(drafter ngram or none)"
                )
            confidence = raw_probs(row, [best])[0]
            pace.decoded(n_read, len(context.ids), perf_counter() - started)
            if best in self.cache.foreign_ids or not pace.take(confidence):
                return
            token, q = self._draw(row, [*ids[-self._params.penalty_last_n :], *draft.ids])
            raw = confidence if token == best else raw_probs(row, [token])[0]
            top = Top.of(row, self._n_alternatives) if self._n_alternatives else None
            draft.append(token, q, raw, "model", top)
            if context.model.vocabulary.is_eog(token):
                return
            if copies is not None:
                running = copies.follow(running, token)
                if copies.splice(running.match, draft, pace, len(ids)):
                    return

    def _draw(
        self, row: npt.NDArray[np.float32], history: Sequence[int]
    ) -> tuple[int, Distribution]:
        if len(self._masked):
            row = row.copy()
            row[self._masked] = -np.inf
        if self._rng is None:
            q = distribution(row, self._greedy_params, history)
            return int(q.ids[0]), q
        q = distribution(row, self._params, history)
        if self.temperature is not None:
            q = self.temperature.apply(q)
        return q.sample(self._rng.random()), q
