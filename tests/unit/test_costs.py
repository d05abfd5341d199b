"""Cost tables: what was measured stays as it is, the rest is filled in, drift is followed."""

from __future__ import annotations

import math

import pytest

from localspec.control.costs import Costs, CostTable, Drift


def table(**seconds: float) -> CostTable:
    made = CostTable(Drift())
    for name, value in seconds.items():
        made.set(int(name[1:]), 0, value)
    return made


def test_jagged_values_stay_jagged() -> None:
    jagged = table(n1=1.0, n2=2.0, n3=3.0, n4=2.2)
    assert jagged.row(0, 4)[1:] == pytest.approx([1.0, 2.0, 3.0, 2.2])


def test_gaps_are_interpolated_and_ends_extended() -> None:
    some = table(n1=1.0, n4=2.5, n8=4.5)
    assert some.seconds(2) == pytest.approx(1.5)
    assert some.seconds(6) == pytest.approx(3.5)
    assert some.seconds(16) == pytest.approx(8.5)
    assert some.is_measured(4)
    assert not some.is_measured(5)


def test_an_empty_table_promises_nothing() -> None:
    assert table().seconds(1) == math.inf
    assert table().is_empty


def test_depth_has_its_own_values_and_lends_its_shape() -> None:
    deep = table(n1=1.0, n2=1.5, n8=4.0)
    deep.observe(1, 5000, 2.0)
    assert deep.seconds(1, 5000) == pytest.approx(2.0)
    assert deep.seconds(8, 5000) == pytest.approx(8.0)  # not measured there: scaled by n = 1
    deep.observe(8, 5000, 6.0)
    assert deep.seconds(8, 5000) == pytest.approx(6.0, rel=0.01)
    assert deep.seconds(8, 0) == pytest.approx(4.0, rel=0.01)


def test_a_slower_machine_is_noticed_for_every_size() -> None:
    costs = Costs()
    for n, seconds in ((1, 1.0), (2, 1.2), (4, 1.6)):
        costs.target.set(n, 0, seconds)
        costs.draft.set(n, 0, seconds / 10)
    for _ in range(60):
        costs.target.observe(1, 0, 2.0)
    assert costs.target.seconds(1) == pytest.approx(2.0, rel=0.05)
    assert costs.target.seconds(4) > 2.0  # never decoded since, yet it follows
    assert costs.draft.seconds(1) > 0.14
    for _ in range(60):
        costs.target.observe(1, 0, 1.0)
    assert costs.target.seconds(1) == pytest.approx(1.0, rel=0.05)


def test_a_dear_draft_does_not_make_plain_decoding_look_dear() -> None:
    costs = Costs()
    costs.target.set(1, 0, 1.0)
    costs.draft.set(1, 0, 0.1)
    for _ in range(100):
        costs.draft.observe(1, 0, 0.2)
    assert costs.target.seconds(1) == pytest.approx(1.0)
    assert costs.draft.seconds(1) == pytest.approx(0.2, rel=0.1)


def test_one_stalled_decode_does_not_upset_the_table() -> None:
    steady = table(n1=1.0, n2=1.2)
    for _ in range(20):
        steady.observe(1, 0, 1.0)
    steady.observe(1, 0, 100.0)
    assert steady.seconds(1) < 1.25


def test_what_is_stored_comes_back() -> None:
    first = table(n1=1.0, n2=1.2)
    first.observe(1, 3000, 1.5)
    second = CostTable(Drift())
    assert second.load_json(first.to_json())
    assert second.row(3000, 4) == pytest.approx(first.row(3000, 4))


@pytest.mark.parametrize(
    "damaged",
    [{}, {"9": {"2": 1.0}}, {"9": {"1": -1.0}}, {"9": {"1": "x"}}, {"x": {"1": 1.0}}, {"9": 3}],
)
def test_a_damaged_store_is_not_taken(damaged: dict[str, object]) -> None:
    fresh = table(n1=1.0)
    assert not fresh.load_json(damaged)
    assert fresh.seconds(1) == 1.0


def test_sizes_that_may_not_be_used_cost_infinity() -> None:
    costs = Costs(may_verify=lambda n: n in (2, 4))
    for n in (1, 2, 3, 4):
        costs.target.set(n, 0, float(n))
    assert costs.verify_row(0, 4) == [0.0, 1.0, 2.0, math.inf, 4.0]


def test_a_table_is_fitted_to_todays_speed_and_keeps_its_shape() -> None:
    stored = table(n1=1.0, n2=2.0, n3=3.0, n4=2.2)
    stored.observe(1, 5000, 4.0)
    stored.rescale(1, 0, 0.5)
    assert stored.row(0, 4)[1:] == pytest.approx([0.5, 1.0, 1.5, 1.1])
    assert stored.seconds(1, 5000) == pytest.approx(2.0)


def bumpy() -> CostTable:
    """A table whose size 8 is truly dear, as K-quants have it on CPUs."""
    found = CostTable(Drift())
    for n, seconds in {1: 1.0, 4: 2.0, 8: 7.0, 16: 6.0}.items():
        found.set(n, 0, seconds)
    return found


def test_what_was_measured_well_is_not_forgotten_while_it_is_not_used() -> None:
    costs = bumpy()
    for _ in range(2_000):
        costs.observe(1, 0, 1.0)
    assert costs.seconds(8) > 6.3
    assert CostTable(Drift()).load_json(costs.to_json())
    assert costs.to_json()["9"]["8"] == pytest.approx(7.0)


def test_a_size_that_was_seen_once_in_a_stall_gets_another_chance() -> None:
    costs = table(n1=1.0, n4=2.0, n16=6.0)
    costs.observe(8, 0, 50.0)
    for _ in range(2_000):
        costs.observe(1, 0, 1.0)
    assert costs.seconds(8) < 4.0


def test_doubt_ends_as_far_as_a_new_time_bears_it_out() -> None:
    costs = table(n1=1.0, n4=2.0, n16=6.0)
    costs.observe(8, 0, 50.0)
    for _ in range(2_000):
        costs.observe(1, 0, 1.0)
    costs.observe(8, 0, 8.0)
    assert costs.seconds(8) == pytest.approx(8.0, rel=0.05)
