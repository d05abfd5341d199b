"""Whether drafting can pay, in numbers and words."""

from __future__ import annotations

import pytest

from localspec.control.economics import best_speed_up, expected_tokens, look
from tests.unit.scripted import scripted_costs


def test_expected_tokens_of_a_round() -> None:
    assert expected_tokens(1.0, 4) == 5.0
    assert expected_tokens(0.0, 4) == 1.0
    assert expected_tokens(0.5, 2) == 1.75


def test_break_even_is_where_the_speed_is_plain() -> None:
    costs = scripted_costs(lambda n: 0.8 + 0.2 * n, lambda n: 0.15)
    outlook = look(costs)
    assert outlook.pays
    assert outlook.break_even is not None
    assert best_speed_up(costs, outlook.break_even + 0.02) > 1.0
    assert best_speed_up(costs, outlook.break_even - 0.02) == 1.0
    assert best_speed_up(costs, 1.0) == pytest.approx(outlook.best_ratio)
    assert outlook.best_n_draft == 16
    for figure in (
        f"{outlook.break_even:.0%}",
        "a target step takes 1000 ms",
        "a draft step 150 ms",
        f"{outlook.best_ratio:.2f}",
    ):
        assert figure in outlook.details


def test_a_draft_that_is_too_slow_is_told_what_would_do() -> None:
    outlook = look(scripted_costs(lambda n: 0.9 + 0.1 * n, lambda n: 2.0))
    assert not outlook.pays
    assert outlook.break_even is None
    assert outlook.best_ratio < 1.0
    assert "cannot pay" in outlook.details
    assert "smaller draft model" in outlook.details
    needed = float(outlook.details.split("a draft step of ")[1].split(" ms")[0]) / 1e3
    faster = scripted_costs(lambda n: 0.9 + 0.1 * n, lambda n: needed * 0.98)
    slower = scripted_costs(lambda n: 0.9 + 0.1 * n, lambda n: needed * 1.1)
    assert best_speed_up(faster, 0.8) > 1.0
    assert best_speed_up(slower, 0.8) == 1.0


def test_a_target_whose_batches_cost_too_much_is_told_so() -> None:
    outlook = look(scripted_costs(lambda n: float(n), lambda n: 0.001))
    assert not outlook.pays
    assert "not even a free draft model" in outlook.details
    assert "Another quant of the target" in outlook.details


def test_what_was_not_measured_is_marked() -> None:
    costs = scripted_costs(lambda n: 1.0 + 0.01 * n, lambda n: 0.05)
    del costs.target._buckets[9][17]
    assert "by interpolation" in look(costs).details


def test_depth_counts() -> None:
    costs = scripted_costs(lambda n: 1.0 + 0.01 * n, lambda n: 0.05)
    for n in (1, 2, 4, 8, 16):
        costs.target.set(n, 5000, float(n))
    assert look(costs).best_ratio > 5
    assert look(costs, depth=5000).best_ratio < 1.05
