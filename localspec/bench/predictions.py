"""The speed-up of every way of drafting, predicted from one recorded plain answer.

Greedy ways are replayed on cost tables that were measured before anything was drafted. What a live
run of the same setting then shows is the check; the report says how far apart they are. For
sampling the laws of both models are taken at the recorded positions, as if every sampled text met
the same ones, and from the most probable tokens of each (64), which top-k 40 leaves whole. Given
that, the expectation is exact for match and rejection; for block it is a mean over drafts drawn
with a fixed seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.bench.replay import FIXED_LENGTHS, replay_all
from localspec.bench.trace import Recording, top_overlap
from localspec.control.costs import Costs
from localspec.decoding.teacher_forcing import Position
from localspec.sampling.chain import distribution
from localspec.sampling.distribution import Distribution, overlap, residual_mass
from localspec.sampling.params import SamplingParams
from localspec.sampling.raw_law import Top

__all__ = ["VERIFIERS", "accepted_laws", "expected_speed_up", "predict", "sampled_speed_ups"]

Laws = dict[int, npt.NDArray[np.float64]]  # by K: P(a accepted), shape (K + 1,)
VERIFIERS = ("match", "rejection", "block")
TEMPERATURES = (0.8, 1.0)
N_DRAFTS = (1, 2, 3, 4, 6, 8)  # of the predictions for sampling
_N_PATHS = 12


def predict(
    prompt_ids: Sequence[int],
    positions: Sequence[Position],
    costs: Mapping[str, Any],
    *,
    is_greedy: bool,
    n_drafts: Sequence[int] = (),
) -> dict[str, Any]:
    """The fields of a `prediction` row. positions: of a plain answer of at least one token.

    speed_up: over plain, by the names of replay_all(), with K=… for fixed lengths. sum_min: mean
    Σ min(p, q) at temperature 1 over the answer (a lower bound, see top_overlap()); None without a
    draft model. sampled: as sampled_speed_ups() gives it.
    """
    header = {"prompt_ids": list(prompt_ids), "greedy": is_greedy, "costs": costs}
    recording = Recording(header, positions)
    outcomes = replay_all(recording, sorted({*FIXED_LENGTHS, *n_drafts}))
    plain = outcomes.pop("plain").tokens_per_s
    overlaps = [top_overlap(at.p, at.q) for at in positions if at.q is not None]
    depth = len(prompt_ids) + len(positions) // 2
    return {
        "speed_up": {
            name.replace("fixed ", "K="): round(outcome.tokens_per_s / plain, 4)
            for name, outcome in outcomes.items()
        },
        "sum_min": statistics.fmean(overlaps) if overlaps else None,
        "sampled": sampled_speed_ups(positions, recording.costs(), depth),
    }


def sampled_speed_ups(
    positions: Sequence[Position], costs: Costs, depth: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Expected speed over plain, by temperature, verifier and K; empty without a draft model."""
    if not positions or positions[0].q is None:
        return {}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for temperature in TEMPERATURES:
        params = SamplingParams(temperature=temperature)
        p = [_law(position.p, params) for position in positions]
        q = [_law(position.q, params) if position.q else None for position in positions]
        for verifier in VERIFIERS:
            laws = accepted_laws(p, q, verifier)
            found.setdefault(f"{temperature:g}", {})[verifier] = {
                str(k): round(expected_speed_up(laws, k, costs, depth), 4) for k in N_DRAFTS
            }
    return found


def accepted_laws(
    p: Sequence[Distribution], q: Sequence[Distribution | None], verifier: str
) -> list[Laws]:
    """For each position, how many tokens of a draft of K that begins there are accepted.

    q is None where the draft model cannot read on: nothing is accepted there.
    """
    rng = np.random.default_rng(0)
    n = len(p)
    if verifier == "block":
        return [_block_laws(p, q, i, rng) for i in range(n)]
    chances = [_chance(p[i], q[i], verifier) for i in range(n)]
    return [
        {k: _law_of(chances[i : i + k]) for k in range(min(max(N_DRAFTS), n - 1 - i) + 1)}
        for i in range(n)
    ]


def expected_speed_up(laws: Sequence[Laws], n_draft: int, costs: Costs, depth: int) -> float:
    """Plain seconds over expected seconds of drafting n_draft tokens each round.

    laws[i] covers every K that has room behind position i.
    """
    verify = costs.target.row(depth, n_draft + 1)
    draft = costs.draft.row(depth, 2)
    n = len(laws)
    seconds = np.zeros((n + 1, 3))  # by position and by the tokens that the draft lacks, 1 or 2
    for i in range(n - 1, -1, -1):
        k = min(n_draft, n - 1 - i)
        if k == 0:
            seconds[i] = verify[1] + seconds[i + 1, 1]
            continue
        law = laws[i][k]
        ahead = sum(law[a] * seconds[i + a + 1, 2 if a == k else 1] for a in range(k + 1))
        for lack in (1, 2):
            seconds[i, lack] = draft[lack] + (k - 1) * draft[1] + verify[k + 1] + ahead
    return float(n * verify[1] / seconds[0, 1])


def _law(top: Top, params: SamplingParams) -> Distribution:
    """The processed law; its ids are those of the vocabulary."""
    logits = np.log(np.maximum(np.asarray(top.probs), 1e-300)).astype(np.float32)
    local = distribution(logits, params, ())
    ids = np.asarray(top.ids, np.int32)[local.ids]
    return Distribution.from_weights(ids, local.probs)


def _chance(p: Distribution, q: Distribution | None, verifier: str) -> float:
    if q is None:
        return 0.0
    if verifier == "match":  # the draft is the most probable token
        return p.prob(int(q.ids[int(np.argmax(q.probs))]))
    return overlap(p, q)


def _law_of(chances: Sequence[float]) -> npt.NDArray[np.float64]:
    law = [math.prod(chances[:a]) * (1.0 - chances[a]) for a in range(len(chances))]
    return np.array([*law, math.prod(chances)])


def _block_laws(
    p: Sequence[Distribution],
    q: Sequence[Distribution | None],
    start: int,
    rng: np.random.Generator,
) -> Laws:
    """verify.block with its coins summed out: a = i with h_i and no later coin below its h."""
    most = min(max(N_DRAFTS), len(p) - 1 - start)
    laws: Laws = {k: np.zeros(k + 1) for k in range(most + 1)}
    for _ in range(_N_PATHS):
        pi, h = [1.0], [1.0]  # h[0]: nothing is accepted when every coin fails
        for i in range(start, start + most):
            law, after = q[i], q[i + 1]
            token = law.sample(float(rng.random())) if law is not None else -1
            ratio = p[i].prob(token) / law.prob(token) if law is not None else 0.0
            pi.append(min(1.0, pi[-1] * ratio))
            mass = float(residual_mass(p[i + 1], after, pi[-1]).sum()) if after else pi[-1]
            left = mass + 1.0 - pi[-1]
            h.append(mass / left if left > 0.0 else 1.0)
        for k in range(most + 1):
            taken = [*h[:k], pi[k]]
            none_later = 1.0
            for a in range(k, -1, -1):
                laws[k][a] += none_later * taken[a] / _N_PATHS
                none_later *= 1.0 - taken[a]
    return laws
