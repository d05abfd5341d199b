"""Draft tokens from a small model, from the text so far, or from one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.decoding.controller import Pace
from localspec.decoding.draft import Draft
from localspec.drafting.copies import Copies
from localspec.drafting.model_drafter import ModelDrafter
from localspec.sampling.constraint import FORCED_MATCH, Constraint
from localspec.sampling.distribution import Distribution

__all__ = ["SpliceDrafter"]


class SpliceDrafter:
    """A model, copies, or both; whoever the pace picks begins the round.

    constraint: text that a grammar forces comes before either, as a copy that cannot be wrong.
    """

    def __init__(
        self,
        model: ModelDrafter | None,
        copies: Copies | None,
        constraint: Constraint | None = None,
    ) -> None:
        self.model = model
        self.copies = copies
        self._constraint = constraint
        if copies is not None:
            copies.constraint = constraint

    @property
    def is_random(self) -> bool:
        """True when the next draft may hold tokens drawn at random."""
        return self.model is not None and self.model.is_random

    def prepare(self, ids: Sequence[int], worth_reading: Callable[[int], bool]) -> None:
        """Read the prompt before the first round, so that prefill is timed apart."""
        if self.copies is not None:
            self.copies.prepare(ids)
        if self.model is not None:
            self.model.cache.prepare(ids, worth_reading)

    def propose(self, ids: Sequence[int], pace: Pace) -> Draft:
        """Tokens to follow `ids`, the committed tokens; none when the pace says so."""
        draft = Draft()
        if self.model is not None and self.model.temperature is not None:
            self.model.temperature.begin()
        n_missing = self.model.cache.missing(ids) if self.model is not None else None
        forced = self._constraint.forced(()) if self._constraint is not None else ()
        if forced and pace.source(FORCED_MATCH, len(forced), n_missing) == "ngram":
            n = pace.copy(FORCED_MATCH, len(forced))
            draft.append_copy(forced[:n], "grammar")
            return draft
        match = self.copies.find(ids) if self.copies is not None else None
        n_available = self.copies.n_available(match) if self.copies and match else 0
        source = pace.source(match.length if match else 0, n_available, n_missing)
        if source == "ngram" and self.copies is not None and match is not None:
            self.copies.splice(match, draft, pace, len(ids))
        elif source == "model" and self.model is not None:
            self.model.draft(ids, draft, pace, self.copies)
        return draft

    def learn(self, p: Sequence[Distribution]) -> None:
        """p[i]: the target's law at the i-th drafted position, up to the one that broke."""
        if self.model is not None and self.model.temperature is not None:
            self.model.temperature.observe(p)

    def settle(self, ids: Sequence[int]) -> None:
        """Forget what did not become part of the committed `ids`."""
        if self.model is not None:
            self.model.cache.settle(ids)
