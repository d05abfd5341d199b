"""The ways of drafting that a replay compares."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.bench.replay import Outcome, Recording, oracle, replay, replay_fixed
from localspec.control.costs import Costs
from localspec.control.expected_value import ExpectedValueController, Experience

__all__ = ["adaptive", "table"]

_N_SEEDS = 8  # replays of a sampled answer that an estimate averages


def adaptive(
    recording: Recording,
    *,
    use_model: bool = True,
    use_copies: bool = True,
    seed: int = 0,
    experience: Experience | None = None,
) -> Outcome:
    """The controller, beginning without experience unless some is given, which then grows."""
    known = experience or Experience()

    def controller(costs: Costs) -> ExpectedValueController:
        return ExpectedValueController(costs, known)

    return replay(recording, controller, use_model=use_model, use_copies=use_copies, seed=seed)


def table(recording: Recording, fixed: Sequence[int]) -> list[tuple[str, Outcome]]:
    """(name, outcome), plain first. The oracle is left out of sampled answers."""
    seeds = range(1 if recording.is_greedy else _N_SEEDS)

    def mean(outcomes: list[Outcome]) -> Outcome:
        n = len(outcomes)
        return Outcome(
            outcomes[0].n_tokens,
            sum(outcome.seconds for outcome in outcomes) / n,
            round(sum(outcome.n_passes for outcome in outcomes) / n),
            round(sum(outcome.n_drafted for outcome in outcomes) / n),
        )

    rows = [("plain", replay_fixed(recording, 0))]
    if recording.has_draft:
        rows += [
            (f"fixed {k}", mean([replay_fixed(recording, k, seed=seed) for seed in seeds]))
            for k in fixed
        ]
    kinds = {"ngram": (False, True)}
    if recording.has_draft:
        kinds.update(model=(True, False), splice=(True, True))
    for name, (use_model, use_copies) in kinds.items():
        found = [
            adaptive(recording, use_model=use_model, use_copies=use_copies, seed=seed)
            for seed in seeds
        ]
        rows.append((f"controller, {name}", mean(found)))
    if recording.has_draft and recording.is_greedy:
        rows.append(("oracle, model", oracle(recording)))
    return rows
