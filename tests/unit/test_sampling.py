"""The sampling chain against a slow one that is obviously right, and the edges of both."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from localspec.errors import EngineError, InvalidOptionError
from localspec.sampling.chain import distribution
from localspec.sampling.distribution import Distribution, residual
from localspec.sampling.params import SamplingParams

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def adjusted(logits, params, history):
    """Bias and penalties, token by token, in the engine's float32."""
    row = np.array(logits, np.float32)
    for token, bias in params.logit_bias.items():
        row[token] += np.float32(bias)
    recent = history[len(history) - min(len(history), params.penalty_last_n) :]
    for token, count in Counter(recent).items():
        penalty = np.float32(params.repeat_penalty)
        row[token] = row[token] * penalty if row[token] <= 0 else row[token] / penalty
        row[token] -= np.float32(count * params.frequency_penalty + params.presence_penalty)
    return row.astype(np.float64)


def reference(logits, params, history=()):
    """{token: probability}: sort everything, then cut the list three times."""
    row = adjusted(logits, params, list(history))
    ranked = sorted(range(len(row)), key=lambda token: (-row[token], token))
    if params.top_k > 0:
        ranked = ranked[: params.top_k]
    if params.temperature == 0.0:
        return {ranked[0]: 1.0}

    weights = [math.exp(row[token] - row[ranked[0]]) for token in ranked]
    if params.top_p < 1.0:
        reached = 0.0
        for n, weight in enumerate(weights, 1):
            reached += weight / math.fsum(weights)
            if reached >= params.top_p:
                ranked = ranked[:n]
                break

    ranked = [t for t in ranked if math.exp(row[t] - row[ranked[0]]) >= params.min_p]
    weights = [math.exp((row[t] - row[ranked[0]]) / params.temperature) for t in ranked]
    total = math.fsum(weights)
    return {token: weight / total for token, weight in zip(ranked, weights, strict=True)}


def assert_well_formed(law):
    assert law.ids.dtype == np.int32
    assert law.probs.dtype == np.float64
    assert law.ids.shape == law.probs.shape
    assert len(law.ids) >= 1
    assert np.all(np.diff(law.ids) > 0)
    assert np.all(np.isfinite(law.probs))
    assert np.all(law.probs >= 0.0)
    assert law.probs.sum() == pytest.approx(1.0, abs=1e-12)


def assert_same(law, expected):
    assert_well_formed(law)
    possible = {int(t): float(x) for t, x in zip(law.ids, law.probs, strict=True) if x > 0.0}
    expected = {t: x for t, x in expected.items() if x > 0.0}
    assert possible.keys() == expected.keys()
    for token, probability in expected.items():
        assert possible[token] == pytest.approx(probability, rel=2e-5, abs=1e-12), token


def random_logits(n_vocab, seed, scale=3.0):
    return np.random.default_rng(seed).normal(0.0, scale, n_vocab).astype(np.float32)


@pytest.mark.parametrize("n_vocab", [50, 2000])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    list(
        itertools.product(
            (0.0, 0.3, 0.8, 1.0, 1.7), (0, 1, 5, 40, 5000), (0.0, 0.5, 0.95, 1.0), (0.0, 0.05, 1.0)
        )
    ),
)
def test_chain_agrees_with_the_reference(n_vocab, temperature, top_k, top_p, min_p):
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    for seed in range(2):
        logits = random_logits(n_vocab, seed)
        assert_same(distribution(logits, params, []), reference(logits, params))


@pytest.mark.parametrize("n_vocab", [50, 2000])
@pytest.mark.parametrize("penalty_last_n", [0, 1, 7, 64])
@pytest.mark.parametrize(
    "penalties",
    [
        {"repeat_penalty": 1.3},
        {"repeat_penalty": 0.7},
        {"presence_penalty": 0.6},
        {"frequency_penalty": 0.4},
        {"frequency_penalty": -0.4, "presence_penalty": -0.2},
        {"repeat_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.25},
    ],
)
def test_penalties_agree_with_the_reference(n_vocab, penalties, penalty_last_n):
    rng = np.random.default_rng(3)
    history = rng.integers(0, 12, 100).tolist()  # a dozen tokens, each many times over
    bias = {0: 2.5, 3: -4.0, n_vocab - 1: 6.0}
    logits = random_logits(n_vocab, 4)
    for chain in (OFF, {}, {"temperature": 0.0}):
        params = SamplingParams(
            **penalties, **chain, penalty_last_n=penalty_last_n, logit_bias=bias
        )
        assert_same(distribution(logits, params, history), reference(logits, params, history))


def test_bias_comes_before_penalties():
    """−1 + 3 = 2 is positive, so the penalty divides."""
    logits = np.array([-1.0, 0.0], np.float32)
    params = SamplingParams(**OFF, repeat_penalty=2.0, logit_bias={0: 3.0})
    odds = math.exp(1.0)
    assert distribution(logits, params, [0]).prob(0) == pytest.approx(odds / (odds + 1))


def test_temperature_comes_last():
    """top-p cuts the law at temperature 1 whatever the temperature is."""
    logits = np.log(np.array([0.6, 0.3, 0.1], np.float32))
    params = SamplingParams(temperature=5.0, top_k=0, top_p=0.8, min_p=0.0)
    assert distribution(logits, params, []).ids.tolist() == [0, 1]


def test_top_p_counts_what_top_k_kept():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    params = SamplingParams(temperature=1.0, top_k=2, top_p=0.56, min_p=0.0)
    assert distribution(logits, params, []).ids.tolist() == [0]  # 0.4/0.7 is enough


def test_min_p_does_not_shrink_what_top_p_counts():
    """0.5 + 0.2 < 0.75 of the whole, so the third token stays though min-p removes the rest."""
    logits = np.log(np.array([0.5, 0.2, 0.15, 0.05, 0.05, 0.05], np.float32))
    params = SamplingParams(temperature=1.0, top_k=0, top_p=0.75, min_p=0.2)
    assert distribution(logits, params, []).ids.tolist() == [0, 1, 2]


def test_penalties_see_the_last_tokens_only():
    logits = np.zeros(4, np.float32)
    params = SamplingParams(**OFF, presence_penalty=1.0, penalty_last_n=2)
    law = distribution(logits, params, [0, 1, 2])
    assert law.prob(0) == law.prob(3) > law.prob(1) == law.prob(2)


def test_history_may_hold_ids_beyond_the_row():
    logits = random_logits(50, 1)
    params = SamplingParams(**OFF, repeat_penalty=1.5)
    got = distribution(logits, params, [7, 60, 1000])
    assert_same(got, reference(logits, params, [7]))


def test_bias_of_an_id_beyond_the_row_is_ignored():
    logits = random_logits(50, 1)
    got = distribution(logits, SamplingParams(**OFF, logit_bias={50: 9.0, -1: 9.0}), [])
    assert_same(got, reference(logits, SamplingParams(**OFF)))


def test_logits_are_left_alone():
    logits = random_logits(50, 1)
    before = logits.copy()
    params = SamplingParams(repeat_penalty=1.5, presence_penalty=0.5, logit_bias={1: 5.0})
    distribution(logits, params, [0, 1, 2])
    assert np.array_equal(logits, before)


def test_read_only_rows_are_accepted():
    logits = random_logits(50, 1)
    logits.flags.writeable = False
    assert_well_formed(distribution(logits, SamplingParams(repeat_penalty=1.5), [0, 1]))


@pytest.mark.parametrize("n_vocab", [50, 2000])
def test_a_vanishing_temperature_is_argmax(n_vocab):
    for seed in range(5):
        logits = random_logits(n_vocab, seed)
        law = distribution(logits, SamplingParams(temperature=1e-9), [])
        assert_well_formed(law)
        assert law.prob(int(logits.argmax())) == 1.0


@pytest.mark.parametrize("greedy", [{"temperature": 0.0}, {"top_k": 1}])
def test_greedy_is_one_hot(greedy):
    logits = random_logits(2000, 2)
    law = distribution(logits, SamplingParams(**greedy), [])
    assert law.ids.tolist() == [int(logits.argmax())]
    assert law.probs.tolist() == [1.0]


@pytest.mark.parametrize("size", [430.0, 1e4])
@pytest.mark.parametrize("temperature", [1e-9, 0.5, 1.0, 100.0])
@pytest.mark.parametrize("chain", [{}, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}])
def test_huge_logits_overflow_nowhere(size, temperature, chain):
    logits = np.random.default_rng(0).uniform(-size, size, 2000).astype(np.float32)
    logits[:2] = size, -size
    for row in (logits, logits + np.float32(size), logits - np.float32(size)):
        law = distribution(row, SamplingParams(temperature=temperature, **chain), [])
        assert_well_formed(law)
        assert law.probs[law.ids.tolist().index(0)] == law.probs.max()


def test_ties_share_alike():
    logits = np.array([1.0, 5.0, 5.0, 0.0, 5.0], np.float32)
    params = SamplingParams(temperature=1e-9, top_k=0, top_p=1.0, min_p=0.0)
    law = distribution(logits, params, [])
    assert [law.prob(t) for t in range(5)] == pytest.approx([0, 1 / 3, 1 / 3, 0, 1 / 3])


def test_ties_at_the_cut_keep_the_right_number():
    logits = np.array([3.0, 2.0, 2.0, 2.0, 1.0] * 10, np.float32)
    params = SamplingParams(temperature=1.0, top_k=20, top_p=1.0, min_p=0.0)
    law = distribution(logits, params, [])
    assert_well_formed(law)
    assert len(law.ids) == 20
    assert sorted(logits[law.ids].tolist()) == [2.0] * 10 + [3.0] * 10


def test_greedy_tie_takes_the_lowest_id():
    logits = np.array([0.0, 7.0, 7.0], np.float32)
    assert distribution(logits, SamplingParams(temperature=0.0), []).ids.tolist() == [1]


def test_a_flat_row_of_many_tokens():
    """More tokens than top-p looks at first."""
    logits = np.zeros(2000, np.float32)
    law = distribution(logits, SamplingParams(temperature=1.0, top_k=0, top_p=0.9), [])
    assert_well_formed(law)
    assert len(law.ids) == pytest.approx(1800, abs=1)


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(**OFF)])
def test_forbidden_tokens_are_never_drawn(params):
    logits = random_logits(50, 1)
    logits[5:] = -np.inf
    law = distribution(logits, params, [])
    assert_well_formed(law)
    assert sum(law.prob(t) for t in range(5)) == pytest.approx(1.0)
    for u in np.linspace(0.0, 1.0, 101, endpoint=False):
        assert law.sample(float(u)) < 5


def test_bias_can_forbid_a_token():
    logits = random_logits(50, 1)
    best = int(logits.argmax())
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature=temperature, logit_bias={best: -math.inf})
        assert distribution(logits, params, []).prob(best) == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0.0)])
def test_a_damaged_row_is_refused(bad, params):
    logits = random_logits(50, 1)
    logits[17] = bad
    with pytest.raises(EngineError):
        distribution(logits, params, [])


def test_a_row_without_any_finite_logit_is_the_models_fault():
    with pytest.raises(EngineError, match="the model returned -inf"):
        distribution(np.full(8, -np.inf, np.float32), SamplingParams(), [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_k": -1},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"repeat_penalty": 0.0},
        {"penalty_last_n": -1},
        {"logit_bias": {1: math.inf}},
        {"logit_bias": {1: math.nan}},
    ],
)
def test_settings_outside_their_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError, match=next(iter(wrong))):
        SamplingParams(**wrong)


def law_of(probabilities):
    """A Distribution from {token: probability}."""
    ids = np.array(sorted(probabilities), np.int32)
    return Distribution(ids, np.array([probabilities[int(t)] for t in ids], np.float64))


def test_sample_is_the_inverse_of_the_cumulative_sum():
    law = law_of({2: 0.25, 5: 0.5, 9: 0.25})
    drawn = [law.sample(u) for u in (0.0, 0.2499, 0.25, 0.7499, 0.75, 1.0 - 2.0**-53)]
    assert drawn == [2, 2, 5, 5, 9, 9]


def test_sample_never_draws_a_zero():
    law = law_of({1: 0.0, 4: 1.0, 7: 0.0})
    assert {law.sample(u) for u in (0.0, 0.5, 1.0 - 2.0**-53)} == {4}


def test_sampled_frequencies_follow_the_law():
    law = distribution(random_logits(50, 1), SamplingParams(temperature=1.0), [])
    n = 20_000
    counts = Counter(law.sample((i + 0.5) / n) for i in range(n))
    for token in law.ids.tolist():
        assert counts[token] / n == pytest.approx(law.prob(token), abs=2 / n)


def test_prob_of_an_absent_id_is_zero():
    law = law_of({2: 0.5, 5: 0.5})
    assert [law.prob(t) for t in (0, 2, 3, 5, 6)] == [0.0, 0.5, 0.0, 0.5, 0.0]


def test_residual_is_what_the_target_has_more_of():
    p = law_of({1: 0.5, 2: 0.3, 3: 0.2})
    q = law_of({0: 0.3, 1: 0.1, 2: 0.6})
    left = residual(p, q)
    assert left is not None
    assert [left.prob(t) for t in range(4)] == pytest.approx([0.0, 0.4 / 0.6, 0.0, 0.2 / 0.6])


def test_residual_with_a_scale():
    left = residual(law_of({1: 0.5, 2: 0.5}), law_of({1: 0.1, 3: 0.9}), 0.4)
    assert left is not None
    assert [left.prob(t) for t in (1, 2, 3)] == pytest.approx([1 / 3, 2 / 3, 0.0])


def test_nothing_is_left_of_equal_laws():
    p = law_of({1: 0.5, 2: 0.5})
    assert residual(p, p) is None
    assert residual(p, law_of({1: 0.5, 2: 0.5}), 0.9) is None
