"""Logits that no sound model gives: a named error, or plain arithmetic; never a wrong token."""

from __future__ import annotations

import math

import numpy as np
import pytest

from localspec.decoding import verify
from localspec.errors import EngineError, InvalidOptionError
from localspec.sampling.chain import distribution
from localspec.sampling.distribution import Distribution, residual
from localspec.sampling.params import SamplingParams
from localspec.sampling.raw_law import RawLaw, Top

OPEN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
GREEDY = SamplingParams(temperature=0.0)
CHAINS = (OPEN, GREEDY, SamplingParams(), SamplingParams(top_k=3), SamplingParams(top_p=0.5))


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("params", CHAINS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_one_poisoned_logit_is_a_named_error(params: SamplingParams, bad: float, at: int) -> None:
    logits = row(1, 2, 3, 4, 5)
    logits[at] = bad
    with pytest.raises(EngineError, match=r"returned (nan|inf) among its logits"):
        distribution(logits, params, ())
    with pytest.raises(EngineError, match="damaged"):
        Top.of(logits, 2)


@pytest.mark.parametrize("params", CHAINS)
def test_an_all_masked_row_is_told_apart(params: SamplingParams) -> None:
    with pytest.raises(EngineError, match="the model returned -inf"):
        distribution(row(-math.inf, -math.inf), params, ())
    banned = SamplingParams(temperature=params.temperature, logit_bias={0: -math.inf, 1: -math.inf})
    with pytest.raises(EngineError, match="every token is forbidden"):
        distribution(row(1, 2), banned, ())


def test_a_masked_token_is_never_drawn() -> None:
    p = distribution(row(1, -math.inf, 2), OPEN, ())
    assert p.prob(1) == 0.0
    assert {p.sample(u) for u in np.linspace(0, 1, 50, endpoint=False)} == {0, 2}


@pytest.mark.parametrize("params", CHAINS)
@pytest.mark.parametrize("size", [430.0, 1e30, 3e38])
def test_huge_logits(params: SamplingParams, size: float) -> None:
    for values in (row(size, -size, 0), row(-size, size, size / 2)):
        p = distribution(values, params, ())
        assert p.prob(int(values.argmax())) == pytest.approx(1.0)
    chance = RawLaw(row(size, 0, -size)).prob(0)
    assert chance == pytest.approx(1.0)


def test_430_in_a_vocabulary_of_250_000() -> None:
    logits = np.full(250_000, 430.0, np.float32)
    logits[::2] -= 3.0
    p = distribution(logits, OPEN, ())
    assert p.probs.sum() == pytest.approx(1.0)
    assert p.prob(1) / p.prob(0) == pytest.approx(math.exp(3.0))


@pytest.mark.parametrize("params", CHAINS)
def test_equal_logits(params: SamplingParams) -> None:
    p = distribution(np.zeros(8, np.float32), params, ())
    assert np.allclose(p.probs, 1.0 / len(p.ids))
    assert p.probs.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("temperature", [1e-30, 1e-9, 1e-4, 1e30])
def test_temperatures_at_the_ends(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0)
    p = distribution(row(-5, 1, 1e30, 2), params, ())
    assert np.isfinite(p.probs).all()
    assert p.probs.sum() == pytest.approx(1.0)


def test_a_bias_that_overflows_is_the_bias_s_fault() -> None:
    with pytest.raises(EngineError, match="logit_bias or a penalty is too large"):
        distribution(row(3e38, 0), SamplingParams(logit_bias={0: 3e38}), ())
    with pytest.raises(EngineError, match="logit_bias or a penalty is too large"):
        distribution(row(3e38, 0), SamplingParams(repeat_penalty=0.01), (0,))


def test_ids_that_are_none() -> None:
    params = SamplingParams(temperature=0.0, logit_bias={-1: 100.0, 7: 100.0}, repeat_penalty=2.0)
    assert distribution(row(1, 2, 3), params, (-1, 99, 0)).ids.tolist() == [2]
    assert Distribution.one_hot(0).prob(-1) == 0.0


def test_nothing_left_after_a_refusal_draws_from_the_target() -> None:
    """p = q in exact arithmetic, and rounding refuses all the same: the residual is empty."""
    p = Distribution(np.array([0, 1], np.int32), np.array([0.5, 0.5]))
    assert residual(p, p) is None
    verdict = verify.rejection([p, p], [p], [0], [1.0], 0.75)
    assert verdict == verify.Verdict(0, 1)
    verdict = verify.block([p, p], [p], [0], [1.0], 0.75)
    assert verdict.token in (0, 1)


def test_a_draft_that_the_target_forbids() -> None:
    p = Distribution(np.array([1, 2], np.int32), np.array([0.25, 0.75]))
    for judge in (verify.rejection, verify.block):
        verdict = judge([p, p], [Distribution.one_hot(5)], [5], [0.0], 0.5)
        assert (verdict.n_accepted, verdict.token) == (0, 2)
    assert verify.match([p, p], [5], [0.5, 0.5]).n_accepted == 0


def test_a_seed_of_nan_or_a_bias_of_nan_is_named() -> None:
    with pytest.raises(InvalidOptionError):
        SamplingParams(logit_bias={1: math.nan})
    with pytest.raises(InvalidOptionError):
        SamplingParams(temperature=math.nan)
