"""A small model that drafts for the large one, as far as the pace allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
import numpy.typing as npt

from localspec.decoding.controller import Pace
from localspec.decoding.draft import Draft
from localspec.drafting.copies import Copies, Running
from localspec.drafting.draft_cache import DraftCache
from localspec.drafting.draft_temperature import DraftTemperature
from localspec.errors import EngineError
from localspec.sampling.chain import distribution
from localspec.sampling.constraint import FORCED_MATCH, Constraint
from localspec.sampling.distribution import Distribution
from localspec.sampling.dry import Dry
from localspec.sampling.mask import Mask, best_allowed
from localspec.sampling.params import SamplingParams
from localspec.sampling.raw_law import RawLaw, Top
from localspec.sampling.truncation import softmax

__all__ = ["ModelDrafter"]

_N_COMPARED = 40  # allowed tokens that the best one's confidence is taken among


class ModelDrafter:
    """A small model sharing the target's vocabulary.

    rng: draws the draft from q, at the draft temperature; None takes the most probable token,
    and q is one-hot. Foreign ids are masked before the draw, for a token dropped after it would
    bend the law. n_alternatives: how many of its most probable tokens are kept for display.
    constraint: q is masked by the grammar as p is, so that no guess is forbidden. Samplers without
    a closed distribution (XTC, mirostat) are left out of q.
    """

    def __init__(
        self,
        cache: DraftCache,
        params: SamplingParams,
        *,
        rng: np.random.Generator | None = None,
        temperature: DraftTemperature | None = None,
        n_alternatives: int = 0,
        constraint: Constraint | None = None,
        dry: Dry | None = None,
    ) -> None:
        self.cache = cache
        self.temperature = temperature
        params = replace(params, mirostat=0, xtc_probability=0.0)
        self._params = params
        self._greedy_params = replace(params, temperature=0.0, dynatemp_range=0.0)
        self._constraint = constraint
        self._dry = dry
        self._masked = np.array([i for i in cache.foreign_ids if i < cache.n_shared], np.int64)
        self._rng = rng
        self._n_alternatives = n_alternatives

    @property
    def is_random(self) -> bool:
        """True when the next draft is drawn at random."""
        return self._rng is not None and not (self.temperature and self.temperature.is_one_hot)

    def draft(self, ids: Sequence[int], draft: Draft, pace: Pace, copies: Copies | None) -> None:
        """Append draft tokens to `draft`, and a copied span where the text behind them is known.

        Ends early at the draft's own context limit, after an end-of-generation token, and where
        the best token is an id that the two models spell differently.
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
            law = RawLaw(row)
            if not np.isfinite(law.max):
                raise EngineError(
                    f"the draft model {context.model.path.name} returned {law.max} among its "
                    "logits: its file is damaged or overflows on this device; go on without it "
                    "(drafter ngram or none)"
                )
            here = self._constraint.after(draft.ids) if self._constraint is not None else None
            mask = None if here is None else here.allowed
            best, confidence = self._best(row, law, mask)
            pace.decoded(n_read, len(context.ids), perf_counter() - started)
            if best is None or best in self.cache.foreign_ids or not pace.take(confidence):
                return
            token, q = self._draw(row, self._history(ids, draft.ids), mask)
            is_plain = token == best and mask is None
            raw = confidence if is_plain else law.prob(token)
            top = Top.of_law(law, self._n_alternatives) if self._n_alternatives else None
            draft.append(token, q, raw, "model", top)
            if context.model.vocabulary.is_eog(token):
                return
            if self._constraint is not None and self._is_settled(draft, pace):
                return
            if copies is not None:
                running = copies.follow(running, token)
                if copies.splice(running.match, draft, pace, len(ids)):
                    return

    def _best(
        self, row: npt.NDArray[np.float32], law: RawLaw, mask: Mask | None
    ) -> tuple[int | None, float]:
        """The most probable token and its probability, among the best allowed ones of a grammar."""
        if mask is None:
            best = int(row.argmax())
            return best, law.prob(best)
        ids = best_allowed(self._without_foreign(row), mask, _N_COMPARED)
        if not len(ids) or not np.isfinite(row[ids].max()):
            return None, 0.0
        found = softmax(row[ids])
        return int(ids[found.argmax()]), float(found.max())

    def _is_settled(self, draft: Draft, pace: Pace) -> bool:
        """Nothing is left to draft: the answer must end, or forced text was appended."""
        assert self._constraint is not None
        here = self._constraint.after(draft.ids)
        if here is None or here.must_end:
            return True
        forced = self._constraint.forced(draft.ids)
        n = pace.copy(FORCED_MATCH, len(forced)) if forced else 0
        draft.append_copy(forced[:n], "grammar")
        return n > 0

    def _draw(
        self, row: npt.NDArray[np.float32], history: Sequence[int], mask: Mask | None
    ) -> tuple[int, Distribution]:
        row = self._without_foreign(row)
        params = self._greedy_params if self._rng is None else self._params
        q = distribution(row, params, history, mask=mask, dry=self._dry)
        if self._rng is None:
            return int(q.ids[0]), q
        if self.temperature is not None:
            q = self.temperature.apply(q)
        return q.sample(self._rng.random()), q

    def _without_foreign(self, row: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if len(self._masked):
            row = row.copy()
            row[self._masked] = -np.inf
        return row

    def _history(self, ids: Sequence[int], draft_ids: Sequence[int]) -> Sequence[int]:
        if not self._params.uses_history:
            return ()
        n = self._params.n_history
        return [*(ids if n is None else ids[-n:]), *draft_ids]
