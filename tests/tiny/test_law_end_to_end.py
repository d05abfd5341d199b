"""Chi-square: the texts that the whole loop makes follow the target's enumerated law.

The law is computed from the target alone, decoding every prefix; the samples come from the round
loop with a noisy draft. A planted bug in each verifier must be noticed.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from localspec.control.expected_value import ExpectedValueController, Experience
from localspec.decoding import engine as engine_module
from localspec.decoding import verify
from localspec.decoding.answer import Limits
from localspec.decoding.controller import FixedController
from localspec.decoding.engine import Engine
from localspec.decoding.events import Finished, Round
from localspec.drafting.copies import Copies
from localspec.drafting.draft_cache import DraftCache
from localspec.drafting.draft_temperature import DraftTemperature
from localspec.drafting.model_drafter import ModelDrafter
from localspec.drafting.splice_drafter import SpliceDrafter
from localspec.llama.context import Context
from localspec.sampling.chain import distribution
from localspec.sampling.params import SamplingParams
from localspec.sampling.seeds import sequential_uniforms
from tests.unit.scripted import scripted_costs

PARAMS = SamplingParams(temperature=1.3, top_k=3, top_p=1.0, min_p=0.0, frequency_penalty=0.6)
PROMPT = [5, 17, 9, 33, 12]
LENGTH = 3
N_SAMPLES = 10_000  # of each verifier, 30,000 in all
Z_ACCEPT, Z_REFUSE = 4.0, 8.0  # standard deviations; a sound verifier passes 4 all but never

Law = dict[tuple[int, ...], float]


@pytest.fixture(scope="module")
def law(contexts: tuple[Context, Context]) -> Law:
    """Exact probability of every answer of LENGTH tokens."""
    target, _ = contexts

    def extend(prefix: tuple[int, ...], p: float) -> Law:
        if len(prefix) == LENGTH:
            return {prefix: p}
        ids = [*PROMPT, *prefix]
        target.keep_prefix(ids[:-1])
        row = target.decode(ids[len(target.ids) :], n_rows=1)[0]
        following = distribution(row, PARAMS, ids)
        found: Law = {}
        for token, share in zip(following.ids.tolist(), following.probs.tolist(), strict=True):
            found.update(extend((*prefix, token), p * share))
        return found

    return extend((), 1.0)


class Learned:
    """What outlives an answer: acceptance, the draft temperature, the index of copies."""

    def __init__(self) -> None:
        self.experience = Experience()
        self.temperature = DraftTemperature()
        self.copies = Copies()
        self.costs = scripted_costs(lambda n: 0.7 + 0.3 * n, lambda n: 0.02)
        self.lengths: Counter[int] = Counter()

    def controller(self) -> ExpectedValueController:
        lengths = self.lengths

        class Counting(ExpectedValueController):
            def observe(self, round_: Round) -> None:
                lengths[round_.n_draft] += 1
                n = round_.n_draft  # time passes as the scripted costs say
                seconds = self.costs.target.seconds(n + 1) + n * self.costs.draft.seconds(1)
                super().observe(replace(round_, elapsed_s=seconds))

        return Counting(self.costs, self.experience)


def sample(
    contexts: tuple[Context, Context],
    verifier: str,
    *,
    one_hot: bool,
    n: int,
    learned: Learned | None = None,
) -> tuple[Counter[tuple[int, ...]], float]:
    target, draft = contexts
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = judged = 0
    rng = sequential_uniforms(0)
    cache = DraftCache(draft, n_vocab_target=target.n_vocab)
    model = ModelDrafter(
        cache, PARAMS, rng=None if one_hot else rng, temperature=learned and learned.temperature
    )
    for seed in range(n):
        engine = Engine(
            target,
            SpliceDrafter(model, learned and learned.copies),
            learned.controller() if learned else FixedController(2),
            PARAMS,
            verifier=verifier,
            seed=seed,
            rng=rng,
            limits=Limits(LENGTH),
        )
        for event in engine.run(PROMPT):
            if isinstance(event, Finished):
                counts[event.token_ids] += 1
                accepted += event.stats.draft_n_accepted
                judged += event.stats.draft_n_accepted + event.stats.draft_n_rejected
    return counts, accepted / judged


def chi_square_z(counts: Counter[tuple[int, ...]], law: Law) -> float:
    """How many standard deviations the statistic lies above its mean (Wilson-Hilferty)."""
    n = counts.total()
    if not set(counts) <= set(law):
        return math.inf  # a text that the target cannot write
    expected = sorted(((p * n, counts[ids]) for ids, p in law.items()), reverse=True)
    cells = [cell for cell in expected if cell[0] >= 5]
    rest = [cell for cell in expected if cell[0] < 5]
    if rest:
        cells.append((sum(e for e, _ in rest), sum(c for _, c in rest)))
    statistic = sum((c - e) ** 2 / e for e, c in cells)
    dof = len(cells) - 1
    assert dof > 10
    spread = 2 / (9 * dof)
    return ((statistic / dof) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


@pytest.mark.parametrize(
    ("verifier", "one_hot"),
    [("match", True), *itertools.product(("rejection", "block"), (False, True))],
)
def test_the_law_is_the_targets(
    contexts: tuple[Context, Context], law: Law, verifier: str, one_hot: bool
) -> None:
    n = N_SAMPLES if (verifier == "match") or not one_hot else N_SAMPLES * 2 // 5
    counts, acceptance = sample(contexts, verifier, one_hot=one_hot, n=n)
    assert 0.1 < acceptance < 0.95, "a draft that is always or never right proves nothing"
    assert chi_square_z(counts, law) < Z_ACCEPT


@pytest.mark.parametrize(("verifier", "one_hot"), [("auto", False), ("match", True)])
def test_the_law_is_the_targets_at_the_controllers_pace(
    contexts: tuple[Context, Context], law: Law, verifier: str, one_hot: bool
) -> None:
    """Draft lengths, draft temperature, splices and verifier all chosen from history."""
    learned = Learned()
    n = N_SAMPLES // 2
    counts, acceptance = sample(contexts, verifier, one_hot=one_hot, n=n, learned=learned)
    assert 0.1 < acceptance < 0.95
    assert len(learned.lengths) > 1, "a pace that never changes proves nothing"
    assert chi_square_z(counts, law) < Z_ACCEPT


def correct_from_p(p, q, draft, coins, u):  # type: ignore[no-untyped-def]
    """Rejection sampling that forgets the residual."""
    found = verify.rejection(p, q, draft, coins, u)
    return verify.Verdict(found.n_accepted, p[found.n_accepted].sample(u))


def trusting_block(p, q, draft, coins, u):  # type: ignore[no-untyped-def]
    """Block verification that takes h = 1 for the whole block."""
    return verify.Verdict(len(draft), p[len(draft)].sample(u))


def half_match(p, draft, u):  # type: ignore[no-untyped-def]
    """Matching that keeps the drafted token where it differs from the sample."""
    found = verify.match(p, draft, u)
    a = found.n_accepted
    return found if a == len(draft) else verify.Verdict(a, draft[a])


@pytest.mark.parametrize(
    ("verifier", "wrong"),
    [("rejection", correct_from_p), ("block", trusting_block), ("match", half_match)],
)
def test_a_planted_bug_is_noticed(
    contexts: tuple[Context, Context],
    law: Law,
    verifier: str,
    wrong: Callable[..., verify.Verdict],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "verify", _with(verifier, wrong))
    counts, _ = sample(contexts, verifier, one_hot=verifier == "match", n=3000)
    assert chi_square_z(counts, law) > Z_REFUSE


def _with(name: str, wrong: Callable[..., verify.Verdict]) -> object:
    class Planted:
        match = staticmethod(verify.match)
        rejection = staticmethod(verify.rejection)
        block = staticmethod(verify.block)

    setattr(Planted, name, staticmethod(wrong))
    return Planted
