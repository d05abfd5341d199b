"""From one recorded plain answer to the speed-up of every way of drafting.

Replays on cost tables that were measured before anything was drafted. What a live run of the same
setting then shows is the check; the report says how far apart they are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from time import perf_counter
from typing import Any

from localspec.bench.plan import PLAIN, Setting
from localspec.bench.prompts import BenchPrompt
from localspec.bench.replay import Recording, table
from localspec.bench.sampled import sampled_speed_ups
from localspec.bench.trace import Trace
from localspec.control.costs import CostTable
from localspec.control.timing import DRAFT_ALL, TARGET_ALL
from localspec.decoding.events import Finished, Round
from localspec.decoding.teacher_forcing import Position
from localspec.errors import LocalspecError
from localspec.session.session import Session

__all__ = ["Prediction", "Row", "Work", "measure_pair", "peak_rss_bytes", "predict"]

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


Row = dict[str, Any]
_N_WARM_UP = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be measured of one pair.

    blocks: (prompt, repetition) still to do. predict: prompts whose prediction is still to do.
    """

    settings: Sequence[Setting]
    blocks: Sequence[tuple[BenchPrompt, int]]
    predict: Sequence[BenchPrompt]
    n_gen: int
    delay_s: float = 0.0
    answering: Mapping[str, Any] = field(default_factory=dict)


def measure_pair(session: Session, work: Work) -> Iterator[Row]:
    """Rows of type `doing` (progress), `block` (its runs in `rows`), `prediction`, then `costs`."""
    yield {"type": "doing", "what": "measuring T(n) and D(n)"}
    session.calibrate(0)
    costs = session.costs.to_json()  # before any draft was judged: predictions use these
    tables = {"t_ms": _milliseconds(session.costs.target, TARGET_ALL)}
    if session.has_draft_model:
        tables["d_ms"] = _milliseconds(session.costs.draft, DRAFT_ALL)
    yield {"type": "doing", "what": "warming up"}
    _warm_up(session, work)
    answers: dict[str, Row] = {}
    for i, (prompt, repetition) in enumerate(work.blocks):
        turn = i % len(work.settings)
        order = [*work.settings[turn:], *work.settings[:turn]]
        runs = {}
        for setting in order:
            time.sleep(work.delay_s)
            runs[setting.name] = _run(session, work, setting, prompt, repetition)
        plain_ids = runs[PLAIN].get("token_ids")
        for row in runs.values():
            row["same_as_plain"] = row.pop("token_ids", None) == plain_ids
        if plain_ids:
            answers.setdefault(prompt.id, {**runs[PLAIN], "token_ids": plain_ids})
        yield {"type": "block", "rows": [runs[setting.name] for setting in work.settings]}
    peak = peak_rss_bytes()  # before the reading below, which no ordinary run does
    for prompt in work.predict:
        yield {"type": "doing", "what": f"predicting {prompt.id}"}
        plain = answers.get(prompt.id) or _run(session, work, work.settings[0], prompt, 0)
        if plain.get("token_ids"):
            yield _prediction(session, work, prompt, plain, costs)
    outlook = session.outlook()
    yield {
        "type": "costs",
        **tables,
        "peak_rss_bytes": peak,
        "outlook": outlook.details if outlook else None,
        "notes": session.notes,
    }


def peak_rss_bytes() -> int | None:
    """The most memory that this process has held so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def _warm_up(session: Session, work: Work) -> None:
    """A short answer in every setting, and batches of K + 1, whatever the controller would do."""
    if not work.blocks and not work.predict:
        return
    prompt = work.blocks[0][0] if work.blocks else work.predict[0]
    options = [setting.options for setting in work.settings]
    if session.has_draft_model and session.can_draft:
        options.append({"drafter": "model", "n_draft": 4})
    for given in options:
        session.clear_cache()
        asked = {**work.answering, **given, "max_tokens": min(_N_WARM_UP, work.n_gen)}
        try:
            session.complete(prompt.question, **asked)
        except LocalspecError:
            continue  # the run itself will say so in its row


def _run(
    session: Session, work: Work, setting: Setting, prompt: BenchPrompt, repetition: int
) -> Row:
    """One answer as a row; one that fails says so in `error`."""
    head: Row = {
        "type": "run",
        "setting": setting.name,
        "prompt": prompt.id,
        "category": prompt.category,
        "repetition": repetition,
        "test_time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    options = {**work.answering, **setting.options, "max_tokens": work.n_gen}
    if options.get("temperature") != 0:
        options.setdefault("seed", repetition + 1)  # the same draws for plain and for drafts
    session.clear_cache()
    session.forget()
    accepted: list[int] = []
    judged: list[int] = []
    first_s: float | None = None
    started = perf_counter()
    try:
        for event in session.stream(prompt.question, **options):
            if isinstance(event, Round):
                if first_s is None:
                    first_s = perf_counter() - started
                _count(event, accepted, judged)
            elif isinstance(event, Finished):
                return {
                    **head,
                    **_figures(event),
                    "ttft_s": first_s,
                    "accepted_by_position": accepted,
                    "judged_by_position": judged,
                }
    except LocalspecError as error:
        return {**head, "error": str(error)}
    raise AssertionError("a stream ends with Finished")


def _figures(finished: Finished) -> Row:
    stats = finished.stats
    n = stats.predicted_n
    return {
        "token_ids": list(finished.token_ids),
        "n_prompt": stats.prompt_n + stats.cache_n,
        "n_gen": n,
        "avg_ns": round(stats.predicted_s * 1e9),
        "avg_ts": stats.predicted_per_second,
        "prompt_per_second": stats.prompt_per_second or None,
        "draft_s": stats.draft_s,
        "verify_s": stats.verify_s,
        "other_s": stats.other_s,
        "draft_n": stats.draft_n,
        "draft_n_accepted": stats.draft_n_accepted,
        "draft_n_rejected": stats.draft_n_rejected,
        "n_passes": stats.n_passes,
        "drafter": stats.drafter,
        "verifier": stats.verifier,
        "reason": finished.reason,
    }


def _count(event: Round, accepted: list[int], judged: list[int]) -> None:
    """Add a round to accepted and judged, by position in the draft."""
    for i, token in enumerate(event.tokens[: event.n_draft]):
        if token.verdict not in ("accepted", "rejected"):
            continue
        if i == len(judged):
            judged.append(0)
            accepted.append(0)
        judged[i] += 1
        accepted[i] += token.verdict == "accepted"


def _prediction(
    session: Session, work: Work, prompt: BenchPrompt, plain: Row, costs: Mapping[str, Any]
) -> Row:
    positions = session.read_positions(prompt.question, plain["token_ids"])
    found = predict(
        session.encode(prompt.question),
        positions,
        costs,
        is_greedy=work.answering.get("temperature") == 0,
        n_drafts=[s.options["n_draft"] for s in work.settings if "n_draft" in s.options],
    )
    return {
        "type": "prediction",
        "prompt": prompt.id,
        "category": prompt.category,
        "n_gen": len(positions),
        "plain_ts": plain["avg_ts"],
        "speed_up": found.speed_up,
        "sum_min": found.sum_min,
        "sampled": found.sampled,
    }


def _milliseconds(table: CostTable, sizes: Sequence[int]) -> dict[str, float]:
    """The measured sizes alone, in milliseconds."""
    measured = [n for n in sizes if table.is_measured(n)]
    return {str(n): round(table.seconds(n) * 1e3, 4) for n in measured}
