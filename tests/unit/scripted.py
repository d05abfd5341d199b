"""Costs that stand still, for tests of what the controller makes of them."""

from __future__ import annotations

from collections.abc import Callable

from localspec.control.costs import Costs, CostTable, Drift


class _Frozen(CostTable):
    def observe(self, n: int, depth: int, seconds: float) -> None:
        """Scripted costs do not change."""


def scripted_costs(
    verify: Callable[[int], float],
    draft: Callable[[int], float],
    may_verify: Callable[[int], bool] | None = None,
) -> Costs:
    """T(n) = verify(n) and D(n) = draft(n) for n up to 33, whatever is observed."""
    costs = Costs(may_verify=may_verify)
    costs.target, costs.draft = _Frozen(Drift()), _Frozen(Drift())
    for n in range(1, 34):
        costs.target.set(n, 0, verify(n))
        costs.draft.set(n, 0, draft(n))
    return costs
