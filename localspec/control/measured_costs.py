"""What was measured about a loaded pair: its costs, and in exact mode the batch sizes to use.

Measured once for a file, machine and setting, then kept on disk. Knows nothing of answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from localspec.control.costs import Costs, CostTable
from localspec.control.exact_sizes import exact_sizes
from localspec.control.timing import (
    DRAFT_ALL,
    DRAFT_SIZES,
    TARGET_ALL,
    TARGET_SIZES,
    measure,
    measure_undo,
    renew,
)
from localspec.llama.context import Context
from localspec.models.stored_costs import load_costs, save_costs

__all__ = ["MeasuredCosts"]

_TARGET_BUDGET_S, _DRAFT_BUDGET_S = 0.7, 0.3


class MeasuredCosts:
    """Measures when it is first asked. The contexts must be idle then; Cancelled may come out.

    settings: what the speed of a context depends on besides its file, the key of what is kept.
    exact: verification may use only the sizes that exact_sizes() finds.
    """

    def __init__(
        self,
        target: Context,
        draft: Context | None,
        settings: Callable[[Context], dict[str, Any]],
        *,
        exact: bool,
    ) -> None:
        self._target, self._draft = target, draft
        self._settings_of = settings
        self._exact = exact
        self._costs: Costs | None = None
        self._sizes: frozenset[int] | None = None

    @property
    def is_done(self) -> bool:
        """True when the costs are known, so that asking for them decodes nothing."""
        return self._costs is not None

    def costs(self) -> Costs:
        """T and D: measured now, within about a second, or stored and fitted to today's speed."""
        if self._costs is None:
            costs = Costs(undo=measure_undo(self._target))
            for context, table, role in self._tables(costs):
                stored = load_costs(context.model.path, self._settings(context, role))
                is_stored = stored is not None and table.load_json(stored)
                self._measure(context, table, is_stored=is_stored)
            if self._exact:
                costs.may_verify = self.exact_sizes().__contains__
            self._costs = costs
            self.keep()
        return self._costs

    def plain_seconds(self) -> Callable[[int], float] | None:
        """T(1) by depth; None until the costs are measured, which this does not do."""
        if self._costs is None:
            return None
        table = self._costs.target
        return lambda depth: table.seconds(1, depth)

    def calibrate(self, depth: int) -> None:
        """Measure every size behind `depth` cached tokens; clears both caches."""
        costs = self.costs()
        for context, table, role in self._tables(costs):
            context.clear()
            context.decode([i % context.n_vocab for i in range(depth)], n_rows=0)
            is_target = role == "target"
            table.forget(depth)  # sizes that are not timed again would stand beside new ones
            measure(
                context,
                table,
                TARGET_ALL if is_target else DRAFT_ALL,
                all_rows=is_target,
                budget_s=math.inf,
                n_repeat=3,
            )
            context.clear()
        self.keep()

    def exact_sizes(self, on_depth: Callable[[int], None] | None = None) -> frozenset[int]:
        """Batch sizes whose rows are bit-identical to single decodes; probed once, then stored.

        on_depth: called with each depth that is about to be probed.
        """
        if self._sizes is None:
            target = self._target
            settings = {**self._settings(target, "exact"), "n_ctx": target.n_ctx}
            stored = load_costs(target.model.path, settings)
            if stored is not None and _are_sizes(stored.get("sizes")):
                self._sizes = frozenset(stored["sizes"])
            else:
                self._sizes = frozenset(exact_sizes(target, on_depth=on_depth))
                save_costs(target.model.path, settings, {"sizes": sorted(self._sizes)})
        return self._sizes

    def keep(self) -> None:
        """Store the tables, which every decode has kept fresh."""
        if self._costs is not None:
            for context, table, role in self._tables(self._costs):
                save_costs(context.model.path, self._settings(context, role), table.to_json())

    def _measure(self, context: Context, table: CostTable, *, is_stored: bool) -> None:
        is_target = context is self._target
        if is_stored:
            if renew(context, table, all_rows=is_target):
                return
            table.forget(len(context.ids))
        measure(
            context,
            table,
            TARGET_SIZES if is_target else DRAFT_SIZES,
            all_rows=is_target,
            budget_s=_TARGET_BUDGET_S if is_target else _DRAFT_BUDGET_S,
        )

    def _tables(self, costs: Costs) -> list[tuple[Context, CostTable, str]]:
        tables = [(self._target, costs.target, "target")]
        if self._draft is not None:
            tables.append((self._draft, costs.draft, "draft"))
        return tables

    def _settings(self, context: Context, role: str) -> dict[str, Any]:
        return {**self._settings_of(context), "role": role}


def _are_sizes(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(n, int) and n > 1 for n in found)
