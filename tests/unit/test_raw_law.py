"""The softmax of a row, against plain float64."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.sampling.raw_law import RawLaw, Top


@pytest.mark.parametrize("n_vocab", [1, 5, 63, 64, 65, 1000, 151_936])
@pytest.mark.parametrize("n", [0, 1, 5, 64])
def test_the_best_are_those_of_a_full_sort(n_vocab: int, n: int) -> None:
    rng = np.random.default_rng(n_vocab + n)
    row = np.round(rng.normal(0, 3, n_vocab), 1).astype(np.float32)  # rounded: many are equal
    expected = np.lexsort((np.arange(n_vocab), -row))[:n]
    assert RawLaw(row).best(n).tolist() == expected.tolist()


def test_neighbours_may_all_be_among_the_best() -> None:
    row = np.zeros(1000, np.float32)
    row[128:148] = np.arange(20, 0, -1)
    assert RawLaw(row).best(20).tolist() == list(range(128, 148))


def test_a_row_of_equals_and_one_of_nothing() -> None:
    assert RawLaw(np.full(1000, 2.5, np.float32)).best(3).tolist() == [0, 1, 2]
    row = np.full(1000, -np.inf, np.float32)
    row[700] = 1.0
    law = RawLaw(row)
    assert law.best(2).tolist() == [700, 0]
    assert law.prob(700) == 1.0
    assert law.prob(3) == 0.0
    assert law.logprob(3) == -np.inf


def test_probabilities_are_those_of_float64() -> None:
    row = np.random.default_rng(3).normal(0, 4, 5000).astype(np.float32)
    wide = row.astype(np.float64)
    expected = np.exp(wide - wide.max()) / np.exp(wide - wide.max()).sum()
    law = RawLaw(row)
    for token in range(0, 5000, 97):
        assert law.prob(token) == pytest.approx(expected[token], rel=1e-5)
        assert law.logprob(token) == pytest.approx(np.log(expected[token]), abs=1e-5)
    top = Top.of(row, 64)
    assert top.rest == pytest.approx(1.0 - np.sort(expected)[-64:].sum(), abs=1e-6)
