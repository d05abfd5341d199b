"""Estimates for sampling against the verifiers themselves, on laws that stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.bench.predictions import (
    VERIFIERS,
    accepted_laws,
    expected_speed_up,
    sampled_speed_ups,
)
from localspec.decoding.teacher_forcing import Position
from localspec.decoding.verify import block, rejection
from localspec.sampling.distribution import Distribution
from localspec.sampling.raw_law import Top
from tests.unit.scripted import scripted_costs

P = Distribution(np.arange(3, dtype=np.int32), np.array([0.6, 0.3, 0.1]))
Q = Distribution(np.arange(3, dtype=np.int32), np.array([0.3, 0.3, 0.4]))


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_each_law_is_a_law(verifier: str) -> None:
    for laws in accepted_laws([P] * 12, [Q] * 12, verifier):
        for k, law in laws.items():
            assert len(law) == k + 1
            assert law.sum() == pytest.approx(1.0)
            assert (law >= 0.0).all()


@pytest.mark.parametrize(("name", "verify"), [("rejection", rejection), ("block", block)])
def test_laws_agree_with_the_verifiers(name: str, verify: object) -> None:
    k, n = 3, 4000
    rng = np.random.default_rng(1)
    counts = np.zeros(k + 1)
    for _ in range(n):
        draft = [Q.sample(float(u)) for u in rng.random(k)]
        counts[verify([P] * (k + 1), [Q] * k, draft, list(rng.random(k)), 0.5).n_accepted] += 1  # type: ignore[operator]
    laws = accepted_laws([P] * 200, [Q] * 200, name)
    law = np.mean([laws[i][k] for i in range(190)], axis=0)
    assert law == pytest.approx(counts / n, abs=0.03)


def test_block_accepts_no_less_than_rejection() -> None:
    def mean(name: str) -> float:
        laws = accepted_laws([P] * 200, [Q] * 200, name)
        return float(np.mean([laws[i][4] @ np.arange(5) for i in range(190)]))

    assert mean("block") >= mean("rejection")


def test_certain_drafts_run_at_the_speed_of_the_costs() -> None:
    """T(1) = 10, T(4) = 16, D(1) = 1, D(2) = 2: four tokens in 20 instead of 40."""
    costs = scripted_costs(lambda n: 8.0 + 2.0 * n, lambda n: 1.0 * n)
    laws = accepted_laws([P] * 400, [P] * 400, "rejection")
    assert expected_speed_up(laws, 3, costs, 0) == pytest.approx(2.0, rel=0.01)
    never = accepted_laws([P] * 400, [None] * 400, "match")
    assert expected_speed_up(never, 3, costs, 0) == pytest.approx(10 / 19, rel=0.01)


def test_without_a_draft_model_there_is_nothing_to_say() -> None:
    top = Top((1, 2), (0.7, 0.3), 0.0)
    costs = scripted_costs(lambda n: 1.0, lambda n: 1.5)
    assert sampled_speed_ups([Position(1, top, None)], costs, 0) == {}
    found = sampled_speed_ups([Position(1, top, top)] * 20, costs, 0)
    assert set(found) == {"0.8", "1"}
    assert set(found["1"]) == set(VERIFIERS)
    assert found["1"]["rejection"]["8"] < 1.0  # a draft dearer than its target
