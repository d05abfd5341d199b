"""Chi-square, sampler by sampler and under a grammar: drafts against the enumerated plain law.

The law is computed from the target alone, decoding every prefix one token at a time; the samples
come from the round loop with a noisy draft. XTC's law is the mixture over its coin, mirostat's
follows mu along each text. Bugs planted in the loop must be noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from localspec.decoding import target_law
from localspec.decoding.answer import Limits
from localspec.decoding.controller import FixedController
from localspec.decoding.engine import Engine
from localspec.decoding.events import Finished
from localspec.drafting.draft_cache import DraftCache
from localspec.drafting.model_drafter import ModelDrafter
from localspec.drafting.splice_drafter import SpliceDrafter
from localspec.llama.context import Context
from localspec.sampling.chain import adjusted, distribution
from localspec.sampling.constraint import Constraint
from localspec.sampling.distribution import Distribution
from localspec.sampling.dry import Dry
from localspec.sampling.mirostat import first_mu, mirostat_law, next_mu
from localspec.sampling.params import SamplingParams
from localspec.sampling.seeds import sequential_uniforms
from localspec.sampling.structured import Matcher, answer_grammar
from tests.tiny.test_law_end_to_end import Z_ACCEPT, Z_REFUSE, Law, chi_square_z

PROMPT = [5, 17, 9, 33, 12, 5, 17, 9]
LENGTH = 3
N_SAMPLES = 3000
BASE: dict[str, Any] = {"temperature": 1.2, "top_k": 4, "top_p": 1.0, "min_p": 0.0}
DRAWN = ("rejection", "block")
# every word may stop at one digit: the vocabulary has none alone to go on with
GRAMMAR = 'root ::= (word word)+ | odd\nword ::= " w" [1-4] [0-9]?\nodd ::= " w" [5-6] [0-3]? odd?'

# A sampler changes p and q, which verifiers take as they come: one of the two that draw will do.
CASES: dict[str, tuple[dict[str, Any], str | None, tuple[str, ...]]] = {
    "typical": ({"typical_p": 0.8}, None, ("match", "rejection")),
    "top-n-sigma": ({"top_n_sigma": 1.0, "top_k": 6}, None, ("match", "block")),
    "dry": (
        {"dry_multiplier": 1.5, "dry_allowed_length": 1, "logit_bias": {33: 4.0}},
        None,
        ("match", "rejection"),
    ),
    "dynamic temperature": ({"dynatemp_range": 0.6}, None, ("match", "block")),
    "xtc": ({"xtc_probability": 0.5, "xtc_threshold": 0.15}, None, ("match",)),
    "mirostat 1": ({"mirostat": 1, "mirostat_tau": 2.6}, None, ("match",)),
    "mirostat 2": ({"mirostat": 2, "mirostat_tau": 2.6}, None, ("match",)),
    "grammar": ({}, GRAMMAR, ("match", *DRAWN)),
    "grammar and mirostat": ({"mirostat": 2, "mirostat_tau": 2.6}, GRAMMAR, ("match",)),
}


def plain_law(target: Context, params: SamplingParams, grammar: str | None) -> Law:
    """Exact probability of every answer of LENGTH tokens, drawn one after another."""
    dry = Dry(params, {}) if params.has_dry else None

    constraint = constraint_of(target, grammar)

    def extend(prefix: tuple[int, ...], p: float, mu: float) -> Law:
        if len(prefix) == LENGTH:
            return {prefix: p}
        ids = [*PROMPT, *prefix]
        target.keep_prefix(ids[:-1])
        row = target.decode(ids[len(target.ids) :], n_rows=1)[0].copy()
        found: Law = {}
        for law, share in laws(row, ids, mu, prefix):
            for token, chance in zip(law.ids.tolist(), law.probs.tolist(), strict=True):
                if chance == 0.0:
                    continue
                longer = next_mu(mu, law, token, params)
                for text, q in extend((*prefix, token), p * share * chance, longer).items():
                    found[text] = found.get(text, 0.0) + q
        return found

    def laws(
        row: Any, ids: list[int], mu: float, prefix: tuple[int, ...]
    ) -> list[tuple[Distribution, float]]:
        here = constraint.after(prefix) if constraint is not None else None
        mask = None if here is None else here.allowed
        if params.mirostat:
            return [(mirostat_law(adjusted(row, params, ()), params, mu, mask), 1.0)]
        x = params.xtc_probability
        return [
            (distribution(row, params, ids, mask=mask, dry=dry, coin=coin), share)
            for coin, share in ((0.0, x), (1.0, 1.0 - x))
            if share > 0.0
        ]

    return extend((), 1.0, first_mu(params))


def constraint_of(target: Context, grammar: str | None) -> Constraint | None:
    found = answer_grammar(grammar=grammar)
    if found is None:
        return None
    vocabulary = target.model.vocabulary
    return Constraint(Matcher(found, vocabulary.grammar_tokenizer), spell, vocabulary.piece)


def answers(
    contexts: tuple[Context, Context],
    params: SamplingParams,
    grammar: str | None,
    verifier: str,
    seeds: Sequence[int],
    n_draft: int = 2,
) -> Iterator[Finished]:
    target, draft = contexts
    dry = Dry(params, {}) if params.has_dry else None
    rng = sequential_uniforms(0)
    cache = DraftCache(draft, n_vocab_target=target.n_vocab)
    for seed in seeds:
        constraint = constraint_of(target, grammar)
        model = ModelDrafter(
            cache,
            params,
            rng=None if verifier == "match" else rng,
            constraint=constraint,
            dry=dry,
        )
        engine = Engine(
            target,
            SpliceDrafter(model, None, constraint),
            FixedController(n_draft),
            params,
            verifier=verifier,
            seed=seed,
            rng=rng,
            limits=Limits(LENGTH),
            constraint=constraint,
            dry=dry,
        )
        for event in engine.run(PROMPT):
            if isinstance(event, Finished):
                yield event


def spell(text: bytes) -> list[int]:
    """The tiny vocabulary has no bytes, so that nothing is forced in it."""
    return []


def z_of(
    contexts: tuple[Context, Context], case: str, verifier: str, n: int = N_SAMPLES
) -> tuple[float, float]:
    """(standard deviations above the plain law, acceptance)."""
    settings, grammar, _ = CASES[case]
    params = SamplingParams(**{**BASE, **settings})
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = judged = 0
    for found in answers(contexts, params, grammar, verifier, range(n)):
        counts[found.token_ids] += 1
        accepted += found.stats.draft_n_accepted
        judged += found.stats.draft_n_accepted + found.stats.draft_n_rejected
    return chi_square_z(counts, plain_law(contexts[0], params, grammar)), accepted / judged


@pytest.mark.parametrize(
    ("case", "verifier"), [(case, v) for case, (_, _, vs) in CASES.items() for v in vs]
)
def test_the_law_with_drafts_is_the_plain_one(
    contexts: tuple[Context, Context], case: str, verifier: str
) -> None:
    z, acceptance = z_of(contexts, case, verifier)
    assert 0.05 < acceptance < 0.97, "a draft that is always or never right proves nothing"
    assert z < Z_ACCEPT


@pytest.mark.parametrize("case", CASES)
def test_matched_ids_depend_neither_on_the_draft_length_nor_on_drafting(
    contexts: tuple[Context, Context], case: str
) -> None:
    settings, grammar, _ = CASES[case]
    params = SamplingParams(**{**BASE, **settings})
    seeds = range(90)
    texts = [
        [found.token_ids for found in answers(contexts, params, grammar, "match", seeds, n_draft)]
        for n_draft in (0, 1, 2, 3)
    ]
    assert all(others == texts[0] for others in texts[1:])
    assert len(set(texts[0])) > 15


def test_a_coin_used_twice_is_noticed(
    contexts: tuple[Context, Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    """XTC by the number that then draws the token."""
    from localspec.sampling.seeds import position_uniform

    monkeypatch.setattr(target_law, "position_coin", position_uniform)
    assert z_of(contexts, "xtc", "match", 3000)[0] > Z_REFUSE


def test_one_coin_for_the_whole_answer_is_noticed(
    contexts: tuple[Context, Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.sampling.seeds import position_coin

    monkeypatch.setattr(target_law, "position_coin", lambda seed, position: position_coin(seed, 0))
    assert z_of(contexts, "xtc", "match", 3000)[0] > Z_REFUSE


def test_a_mask_of_the_row_before_is_noticed(
    contexts: tuple[Context, Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Constraint.after

    def wrong(self: Constraint, draft_ids: Sequence[int]) -> Any:
        return right(self, draft_ids[:-1])

    original = target_law.TargetLaw._law

    def law(self: Any, row: Any, ids: Any, position: int, draft_ids: Any, mu: float) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Constraint, "after", wrong)
            return original(self, row, ids, position, draft_ids, mu)

    monkeypatch.setattr(target_law.TargetLaw, "_law", law)
    with pytest.raises(AssertionError, match="against the grammar"):
        z_of(contexts, "grammar", "block", 1500)


def test_a_state_moved_by_rejected_tokens_is_noticed(
    contexts: tuple[Context, Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    """mirostat's mu counts every drafted token, kept or not."""
    original = target_law.TargetLaw.rows

    def rows(self: Any, rows: Any, ids: Any, n_prompt: int, draft_ids: Any) -> Any:
        found = original(self, rows, ids, n_prompt, draft_ids)
        for law, token in zip(found, draft_ids, strict=False):
            self._mu = next_mu(self._mu, law, token, self._params)
        return found

    monkeypatch.setattr(target_law.TargetLaw, "rows", rows)
    settings, grammar, _ = CASES["mirostat 2"]
    params = SamplingParams(**{**BASE, **settings})
    by_length = [
        [f.token_ids for f in answers(contexts, params, grammar, "match", range(60), n)]
        for n in (0, 2)
    ]
    assert by_length[0] != by_length[1]
    assert z_of(contexts, "mirostat 2", "match", 4000)[0] > Z_REFUSE


def test_the_penalty_of_dry_matters_here(contexts: tuple[Context, Context]) -> None:
    """Otherwise its chi-square would prove nothing."""
    params = SamplingParams(**{**BASE, **CASES["dry"][0]})
    with_dry = plain_law(contexts[0], params, None)
    without = plain_law(contexts[0], replace(params, dry_multiplier=0.0), None)
    differences = [abs(with_dry.get(t, 0.0) - p) for t, p in without.items()]
    assert sum(differences) > 0.05
