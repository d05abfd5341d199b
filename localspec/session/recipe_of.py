"""From what an answer was asked and how it went to its recipe and its promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.decoding.events import Stats
from localspec.session.options import DRAFTERS, Options
from localspec.session.plain_data import to_dict
from localspec.session.promise import Promise, promise_of
from localspec.session.recipe import Recipe

__all__ = ["recipe_of"]


def recipe_of(
    prompt_ids: Sequence[int],
    options: Options,
    stats: Stats,
    made_by: dict[str, Any],
    *,
    verifier: str,
    drafter: str,
    exact: bool,
    cold: bool,
) -> tuple[Recipe, Promise]:
    """verifier, drafter: as the answer began. exact, cold: see Promise."""
    is_built_in = drafter in DRAFTERS
    promise = promise_of(
        verifier=verifier,
        greedy=options.sampling().greedy,
        seeded=options.seed not in (None, -1),
        fixed_lengths=drafter == "none" or (is_built_in and options.n_draft is not None),
        exact=exact,
        cold=cold,
    )
    said = to_dict(options)
    usual = to_dict(Options())
    chosen = {name: value for name, value in said.items() if value != usual[name]}
    if not isinstance(options.drafter, str):
        chosen.pop("drafter", None)  # an object of the program: match does without it
    if not isinstance(options.controller, str):
        chosen.pop("controller", None)
    chosen["seed"] = stats.seed
    if verifier == "match":
        chosen["verifier"] = "match"
    return Recipe(tuple(prompt_ids), chosen, made_by, promise.kind), promise
