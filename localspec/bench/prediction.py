"""From one recorded plain answer to the speed-up of every way of drafting.

Replays on cost tables that were measured before anything was drafted. What a live run of the same
setting then shows is the check; the report says how far apart they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.bench.policies import table
from localspec.bench.replay import Recording
from localspec.bench.sampled import sampled_speed_ups
from localspec.bench.trace import Trace
from localspec.decoding.teacher_forcing import Position

__all__ = ["Prediction", "predict"]

FIXED = (1, 2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True, slots=True)
class Prediction:
    """speed_up: over plain, by the names of `policies.table`, K=… for fixed lengths.

    sum_min: mean Σ min(p, q) at temperature 1 over the answer, from the most probable tokens of
    both models (a lower bound by the mass that is left out); None without a draft model.
    sampled: as sampled_speed_ups() gives it.
    """

    speed_up: dict[str, float]
    sum_min: float | None
    sampled: dict[str, dict[str, dict[str, float]]]


def predict(
    prompt_ids: Sequence[int],
    positions: Sequence[Position],
    costs: Mapping[str, Any],
    *,
    is_greedy: bool,
    n_drafts: Sequence[int] = (),
) -> Prediction:
    """positions: what both models say before each token of a plain answer, at least one."""
    header = {"prompt_ids": list(prompt_ids), "greedy": is_greedy, "costs": costs}
    recording = Recording(Trace(header, (), tuple(positions)))
    fixed = sorted({*FIXED, *n_drafts})
    outcomes = dict(table(recording, fixed))
    plain = outcomes.pop("plain").tokens_per_s
    speed_up = {
        name.replace("fixed ", "K="): round(outcome.tokens_per_s / plain, 4)
        for name, outcome in outcomes.items()
    }
    depth = len(prompt_ids) + len(positions) // 2
    sampled = sampled_speed_ups(positions, recording.costs(), depth)
    return Prediction(speed_up, _sum_min(positions), sampled)


def _sum_min(positions: Sequence[Position]) -> float | None:
    found = [
        sum(min(position.p.prob(token), share) for token, share in zip(q.ids, q.probs, strict=True))
        for position in positions
        if (q := position.q) is not None
    ]
    return sum(found) / len(found) if found else None
