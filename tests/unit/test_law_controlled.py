"""The law again, by enumeration, with the controller deciding how far each draft goes.

Every draft that the expected-value controller can make on toy tables is enumerated with its
probability: it looks at the prefix and at q's shape, stops early, goes on, and splices copies in.
A controller that looks at the drawn token first must fail.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest

from localspec.control.expected_value import ExpectedValueController, Experience
from localspec.decoding.verify import block, match, rejection
from localspec.sampling.distribution import Distribution
from tests.unit.scripted import scripted_costs
from tests.unit.test_law import (
    DraftLaw,
    Prefix,
    Table,
    assert_lossless,
    match_law,
    pair,
    table,
    verdict_law,
)

N_VOCAB, DEPTH = 3, 3
Leaf = tuple[Prefix, list[Distribution], float]
COSTS = scripted_costs(lambda n: 0.62 + 0.38 * n, lambda n: 0.08)


class Controlled:
    """Walks every draft that a controller with this experience can make."""

    def __init__(self, q: Table, experience: Experience, *, may_trim: bool, copies: bool) -> None:
        self.q, self.experience, self.may_trim, self.copies = q, experience, may_trim, copies

    def leaves(self) -> list[Leaf]:
        return self._grow((), [], 1.0)

    def _grow(self, prefix: Prefix, qs: list[Distribution], weight: float) -> list[Leaf]:
        pace = ExpectedValueController(COSTS, copy.deepcopy(self.experience)).begin(
            9, DEPTH, may_trim=self.may_trim
        )
        assert pace.source(0, 0, 1) == "model"
        for i in range(len(prefix)):  # replays the decisions that led here
            assert pace.another()
            assert pace.take(self._confidence(prefix[:i]))
            assert pace.copy(*self._match(prefix[: i + 1])) == 0
        if not pace.another() or not pace.take(self._confidence(prefix)):
            if self.may_trim:
                n = pace.trim()
                prefix, qs = prefix[:n], qs[:n]
            return [(prefix, qs, weight)]
        found: list[Leaf] = []
        law = self.q[prefix]
        for token, share in zip(law.ids.tolist(), law.probs.tolist(), strict=True):
            fork = copy.deepcopy(pace)
            longer, more = (*prefix, token), [*qs, law]
            n = fork.copy(*self._match(longer))
            if n:
                span = tuple((token + 1 + j) % N_VOCAB for j in range(n))
                hot = [Distribution.one_hot(t) for t in span]
                found.append(((*longer, *span), [*more, *hot], weight * share))
            else:
                found += self._grow(longer, more, weight * share)
        return found

    def _confidence(self, prefix: Prefix) -> float:
        return float(self.q[prefix].probs.max())

    def _match(self, prefix: Prefix) -> tuple[int, int]:
        """A long match after some prefixes, chosen by the tokens that are kept."""
        if not self.copies or prefix[-1] != 1:
            return 0, 0
        return 20, DEPTH - len(prefix)


def law_of(leaves: Sequence[Leaf], p: Table, judge: DraftLaw) -> dict[Prefix, float]:
    law: dict[Prefix, float] = defaultdict(float)
    for draft, qs, weight in leaves:
        ps = [p[draft[:i]] for i in range(len(draft) + 1)]
        for output, probability in judge(ps, qs, draft).items():
            law[output] += weight * probability
    return law


def experience(alpha: float) -> Experience:
    learned = Experience()
    learned.alpha = alpha
    return learned


JUDGES: dict[str, DraftLaw] = {
    "rejection": partial(verdict_law, rejection),
    "block": partial(verdict_law, block),
}


@pytest.mark.parametrize("copies", [False, True], ids=["model", "splice"])
@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("seed", range(6))
def test_sampled_drafts_at_the_controllers_pace_keep_the_law(
    judge: str, seed: int, copies: bool
) -> None:
    p, q = pair("real", N_VOCAB, DEPTH, seed)
    walker = Controlled(q, experience(0.75), may_trim=False, copies=copies)
    leaves = walker.leaves()
    assert sum(weight for _, _, weight in leaves) == pytest.approx(1.0)
    assert_lossless(law_of(leaves, p, JUDGES[judge]), p, N_VOCAB, DEPTH)


def test_the_pace_does_vary_with_the_prefix() -> None:
    """Otherwise the tests above would prove no more than those of a fixed K."""
    lengths = set()
    for seed in range(6):
        _, q = pair("real", N_VOCAB, DEPTH, seed)
        leaves = Controlled(q, experience(0.75), may_trim=False, copies=False).leaves()
        lengths.add(frozenset(len(draft) for draft, _, _ in leaves))
    assert any(len(found) > 1 for found in lengths)
    spliced = Controlled(q, experience(0.75), may_trim=False, copies=True).leaves()
    assert any(len(qs[-1].ids) == 1 for _, qs, _ in spliced if qs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("copies", [False, True], ids=["model", "splice"])
def test_deterministic_drafts_may_be_trimmed(seed: int, copies: bool) -> None:
    p, _ = pair("real", N_VOCAB, DEPTH, seed)
    shape = table(lambda rng, n: _peak(rng, n), N_VOCAB, DEPTH, seed)
    hot = {prefix: Distribution.one_hot(int(law.probs.argmax())) for prefix, law in shape.items()}
    walker = Controlled(hot, experience(0.75), may_trim=True, copies=copies)
    walker._confidence = lambda prefix: float(shape[prefix].probs.max())  # type: ignore[method-assign]
    judges: list[DraftLaw] = [partial(match_law, match), *JUDGES.values()]
    for judge in judges:
        assert_lossless(law_of(walker.leaves(), p, judge), p, N_VOCAB, DEPTH)


def _peak(rng: np.random.Generator, n_vocab: int) -> Distribution:
    return Distribution(np.arange(n_vocab, dtype=np.int32), rng.dirichlet(np.full(n_vocab, 0.3)))


@pytest.mark.parametrize("judge", JUDGES)
def test_a_pace_that_peeks_at_the_drawn_token_is_found_out(judge: str) -> None:
    p, q = pair("real", N_VOCAB, DEPTH, 2)

    def peeking(grow: Callable[..., list[Leaf]]) -> list[Leaf]:
        """Drops the last drawn token where it was an unlikely one."""
        return [
            (draft[:-1], qs[:-1], weight)
            if draft and qs[-1].prob(draft[-1]) < 0.4
            else (draft, qs, weight)
            for draft, qs, weight in grow()
        ]

    leaves = peeking(Controlled(q, experience(0.75), may_trim=False, copies=False).leaves)
    with pytest.raises(AssertionError):
        assert_lossless(law_of(leaves, p, JUDGES[judge]), p, N_VOCAB, DEPTH)
