"""Timing a context, on a clock that the decodes move themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from localspec.control import timing as module
from localspec.control.costs import CostTable, Drift
from localspec.control.timing import TARGET_SIZES, measure, renew


class Clocked:
    """A context of which a decode of n tokens takes cost(n) seconds."""

    n_ctx, n_batch, max_rows, n_vocab = 512, 512, 64, 64

    def __init__(self) -> None:
        self.now = 0.0
        self.ids: list[int] = []
        self.busy = 1.0

    def cost(self, n: int) -> float:
        return 0.05 + 0.01 * n

    def decode(self, ids: Sequence[int], *, n_rows: int) -> None:
        self.ids += ids
        self.now += self.cost(len(ids)) * self.busy

    def truncate(self, n: int) -> bool:
        del self.ids[n:]
        return True

    def checkpoint(self) -> None: ...

    def clear(self) -> None:
        self.ids.clear()


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Clocked()
    monkeypatch.setattr(module, "perf_counter", lambda: made.now)
    return made


def filled(context: Any) -> CostTable:
    table = CostTable(Drift())
    measure(context, table, TARGET_SIZES, all_rows=True, budget_s=math.inf)
    return table


def test_every_size_is_timed(context: Any) -> None:
    table = filled(context)
    assert [table.seconds(n) for n in TARGET_SIZES] == pytest.approx(
        [context.cost(n) for n in TARGET_SIZES]
    )


def test_a_slower_day_scales_the_whole_table(context: Any) -> None:
    table = filled(context)
    context.busy = 3.0
    assert renew(context, table, all_rows=True)
    assert table.seconds(8) == pytest.approx(3.0 * context.cost(8))


@pytest.mark.parametrize("factor", [2.5, 0.3])
def test_a_table_of_another_shape_is_found_out(context: Any, factor: float) -> None:
    """Its batches, or its single steps, were timed while another program ran."""
    table = filled(context)
    for n in TARGET_SIZES[1:]:
        table.set(n, 0, factor * context.cost(n))
    assert not renew(context, table, all_rows=True)


def test_a_draft_is_fitted_by_its_single_steps(context: Any) -> None:
    table = filled(context)
    table.set(4, 0, 9.0)
    assert renew(context, table, all_rows=False)
    assert not context.ids
