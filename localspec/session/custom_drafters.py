"""Drafters and controllers from outside: found, made once, and what was learned about each.

Knows who they are; that they can do no harm is the business of drafting/custom_drafter.py and
control/custom_controller.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.control.costs import Costs, CostTable
from localspec.control.custom_controller import GuardedController
from localspec.control.expected_value import Experience
from localspec.drafting.custom_drafter import GuardedDrafter, shape_of
from localspec.errors import DrafterError, LocalspecError, PluginError
from localspec.llama.vocabulary import Vocabulary
from localspec.session.options import DRAFTERS
from localspec.session.plugins import plugin

__all__ = ["CustomDrafter", "CustomDrafters"]

_FIRST_GUESS_S = 1e-4  # of one predict(); every call corrects it
_MOST_KEPT = 32


@dataclass(slots=True)
class CustomDrafter:
    """What was asked for, the drafter itself, its name, what was learned (greedy, sampling)."""

    wanted: Any  # referenced, so that its id stays its own
    drafter: Any
    name: str
    experiences: dict[bool, Experience]
    predict_s: CostTable | None = None

    @property
    def is_predictor(self) -> bool:
        """True when its tokens may be drawn at random."""
        return shape_of(self.drafter) == "predict"

    def costs(self, costs: Costs) -> Costs:
        """The target's costs with this drafter's own in the place of the draft model's."""
        if self.predict_s is None:
            self.predict_s = CostTable(costs.drift, moves_drift=False)
            self.predict_s.set(1, 0, _FIRST_GUESS_S)
        mine = Costs(drift=costs.drift, may_verify=costs.may_verify)
        mine.target, mine.draft = costs.target, self.predict_s
        return mine


class CustomDrafters:
    """The drafters of one session, each made once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._kinds: dict[Any, CustomDrafter] = {}

    def forget(self) -> None:
        """Forget what was learned about acceptance, not the drafters."""
        for kind in self._kinds.values():
            kind.experiences = _no_experience()

    def kind(self, wanted: Any) -> CustomDrafter | None:
        """The drafter that the option means; None for the built-in names.

        Raises PluginError for one that cannot be imported, DrafterError for a callable that
        makes none.
        """
        if isinstance(wanted, str) and wanted in DRAFTERS:
            return None
        key = wanted if isinstance(wanted, str) else id(wanted)
        found = self._kinds.get(key)
        if found is None:
            if len(self._kinds) >= _MOST_KEPT:
                del self._kinds[next(iter(self._kinds))]
            drafter, name = self._made(wanted)
            found = self._kinds[key] = CustomDrafter(wanted, drafter, name, _no_experience())
        return found

    def guarded(self, kind: CustomDrafter, rng: np.random.Generator | None) -> GuardedDrafter:
        """The drafter of one answer. rng: None draws nothing at random."""
        return GuardedDrafter(
            kind.drafter,
            kind.name,
            self._vocabulary.n_tokens,
            rng=rng,
            is_end=self._vocabulary.is_eog,
        )

    def controller(
        self, wanted: Any, may_verify: Callable[[int], bool] | None
    ) -> GuardedController:
        """The controller that the option means, guarded."""
        name = wanted if isinstance(wanted, str) else _name(wanted)
        made: Any = plugin("controllers", wanted) if isinstance(wanted, str) else wanted
        if not callable(getattr(made, "begin", None)) or isinstance(made, type):
            made = _call(made, name, PluginError)
        if not callable(getattr(made, "begin", None)):
            raise PluginError(f"{name} made {type(made).__name__}, which has no begin()")
        return GuardedController(made, name, may_verify)

    def _made(self, wanted: Any) -> tuple[Any, str]:
        name = wanted if isinstance(wanted, str) else _name(wanted)
        made = plugin("drafters", wanted) if isinstance(wanted, str) else wanted
        if shape_of(made) is None:
            made = _call(made, name, DrafterError, self._vocabulary)
        if shape_of(made) is None:
            raise DrafterError(
                f"{name} made {type(made).__name__}, which has none of guess(ids, n_max), "
                "predict(ids) and propose(ids, pace)"
            )
        return made, name


def _call(
    maker: Callable[..., Any], name: str, error: type[LocalspecError], *arguments: Any
) -> Any:
    try:
        return maker(*arguments)
    except LocalspecError:
        raise
    except Exception as failure:
        raise error(f"{name} could not be made: {type(failure).__name__}: {failure}") from failure


def _name(thing: Any) -> str:
    """How to call it; the built-in names mean something else."""
    named = getattr(thing, "name", None)
    if not isinstance(named, str) or not named:
        named = getattr(thing, "__name__", type(thing).__name__)
    return f"own {named}" if named in DRAFTERS else str(named)


def _no_experience() -> dict[bool, Experience]:
    return {True: Experience(), False: Experience()}
