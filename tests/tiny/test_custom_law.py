"""Chi-square: drafters that cheat do not bend the law, whichever verifier judges them.

Each knows the target's law (it peeks through learn() and a table) and uses it to push its own
choice; a guard that believed them would be noticed, and the last test plants just that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from localspec.decoding.answer import Limits
from localspec.decoding.controller import FixedController, Pace
from localspec.decoding.draft import Draft
from localspec.decoding.engine import Engine
from localspec.decoding.events import Finished
from localspec.drafting.custom_drafter import GuardedDrafter
from localspec.llama.context import Context
from localspec.sampling.distribution import Distribution
from localspec.sampling.seeds import sequential_uniforms
from tests.tiny import test_law_end_to_end as laws
from tests.tiny.test_law_end_to_end import LENGTH, PARAMS, PROMPT, Z_ACCEPT, Z_REFUSE, Law

law = laws.law

N_SAMPLES = 2000


class Favourite:
    """Guesses the first tokens of one text, again and again."""

    def __init__(self, law: Law) -> None:
        self.text = max(law, key=lambda ids: law[ids])

    def guess(self, ids: Sequence[int], n_max: int) -> Sequence[int]:
        return self.text[len(ids) - len(PROMPT) :]


class Liar(Favourite):
    """Proposes its favourite and says that it was all but impossible, so that p/q is large."""

    is_random = True

    def propose(self, ids: Sequence[int], pace: Pace) -> Draft:
        draft = Draft()
        if pace.source(0, 0, 1) == "model":
            for token in self.guess(ids, 9):
                if not pace.another() or not pace.take(0.5):
                    break
                others = np.sort([token, (token + 1) % 60]).astype(np.int32)
                probs = np.where(others == token, 1e-6, 1.0 - 1e-6)
                draft.append(token, Distribution(others, probs), None, "model")
        return draft


class Moody(Favourite):
    """Predicts a law that changes with the text and has little to do with the target's."""

    def predict(self, ids: Sequence[int]) -> Any:
        rng = np.random.default_rng(sum(ids))
        skewed = rng.dirichlet(np.full(64, 0.05))
        skewed[list(self.text)] += 1.0
        skewed[self.text[min(len(ids) - len(PROMPT), LENGTH - 1)]] += 1.0
        return skewed / skewed.sum()


class Whimsical(Favourite):
    """Guesses at random, longer when its favourite came up."""

    def __init__(self, law: Law) -> None:
        super().__init__(law)
        self.rng = np.random.default_rng(4)

    def guess(self, ids: Sequence[int], n_max: int) -> Sequence[int]:
        following = self.text[len(ids) - len(PROMPT) :]
        return following if self.rng.random() < 0.5 else following[:1]


def sample(
    contexts: tuple[Context, Context], law: Law, kind: Any, verifier: str
) -> tuple[Counter[tuple[int, ...]], int]:
    target, _ = contexts
    counts: Counter[tuple[int, ...]] = Counter()
    drafter = kind(law)
    n_accepted = 0
    rng = sequential_uniforms(0)
    for seed in range(N_SAMPLES):
        own = GuardedDrafter(
            drafter,
            "mine",
            target.n_vocab,
            rng=None if verifier == "match" else rng,
            is_end=lambda token: False,
        )
        engine = Engine(
            target,
            own,
            FixedController(2),
            PARAMS,
            verifier=verifier,
            seed=seed,
            rng=rng,
            limits=Limits(LENGTH),
        )
        for event in engine.run(PROMPT):
            if isinstance(event, Finished):
                counts[event.token_ids] += 1
                n_accepted += event.stats.draft_n_accepted
    return counts, n_accepted


@pytest.mark.parametrize("verifier", ["match", "rejection", "block"])
@pytest.mark.parametrize("kind", [Favourite, Liar, Moody, Whimsical])
def test_a_drafter_that_cheats_does_not_bend_the_law(
    contexts: tuple[Context, Context], law: Law, kind: Any, verifier: str
) -> None:
    counts, n_accepted = sample(contexts, law, kind, verifier)
    assert n_accepted > N_SAMPLES / 20, "a draft that is never accepted proves nothing"
    assert laws.chi_square_z(counts, law) < Z_ACCEPT


@pytest.mark.parametrize("verifier", ["rejection", "block"])
def test_a_guard_that_believes_would_be_noticed(
    contexts: tuple[Context, Context], law: Law, verifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believing(self: GuardedDrafter, ids: tuple[int, ...], pace: Pace) -> Draft:
        found: Draft = self._call("propose", ids, pace)
        return found

    monkeypatch.setattr(GuardedDrafter, "_proposed", believing)
    monkeypatch.setattr(GuardedDrafter, "is_random", True)
    counts, _ = sample(contexts, law, Liar, verifier)
    assert laws.chi_square_z(counts, law) > Z_REFUSE
