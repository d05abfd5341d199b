"""One pair measured: its files loaded, costs timed, and every answer as a row.

Runs in a process of its own (see worker.py). The settings of a pair are run in turn for each prompt
and repetition, with caches cleared, so that every ratio to plain decoding is of one minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from typing import Any

from localspec.bench.machine import power_source
from localspec.bench.plan import Setting
from localspec.bench.predictions import predict
from localspec.bench.prompts import BenchPrompt
from localspec.control.costs import CostTable
from localspec.control.timing import DRAFT_ALL, TARGET_ALL
from localspec.decoding.events import Finished, Round
from localspec.errors import LocalspecError
from localspec.jsonl_file import Row
from localspec.llama.devices import list_devices
from localspec.session.options import LoadOptions, parse
from localspec.session.session import Session

__all__ = ["PairWork", "measure_pair"]

_N_WARM_UP = 12  # tokens of an answer that is not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWork:
    """What is to be measured of one pair.

    loading, answering: options of the load and of every answer. blocks: (prompt, repetition) still
    to do. predict: prompts whose prediction is still to do. n_gen: tokens of an answer at most.
    delay_s: rest before each answer.
    """

    target: Path
    draft: Path | None
    loading: Mapping[str, Any] = field(default_factory=dict)
    settings: Sequence[Setting]
    blocks: Sequence[tuple[BenchPrompt, int]]
    predict: Sequence[BenchPrompt]
    n_gen: int
    delay_s: float = 0.0
    answering: Mapping[str, Any] = field(default_factory=dict)


def measure_pair(work: PairWork) -> Iterator[Row]:
    """Load the pair and measure it.

    Rows of type `doing` (progress), `block` (its runs in `rows`), `prediction`, then `pair`.
    Raises what loading raises.
    """
    yield _doing("loading")
    free = _gpu_free_bytes()
    started = perf_counter()
    with Session(work.target, work.draft, parse(LoadOptions, work.loading)) as session:
        loaded = session.loaded
        pair = {
            "type": "pair",
            "load_s": perf_counter() - started,
            "vram_bytes": max(0, free - _gpu_free_bytes()) if loaded.n_gpu_layers else None,
            "device": session.device,
            "power": power_source(),
            **{name: getattr(loaded, name) for name in loaded.__slots__},
        }
        yield _doing("measuring T(n) and D(n)")
        session.calibrate(0)
        costs = (
            session.costs.to_json()
        )  # before any draft token was verified: predictions use these
        pair["t_ms"] = _milliseconds(session.costs.target, TARGET_ALL)
        if session.has_draft_model:
            pair["d_ms"] = _milliseconds(session.costs.draft, DRAFT_ALL)
        yield _doing("warming up")
        _warm_up(session, work)
        answers: dict[str, Row] = {}
        for i, (prompt, repetition) in enumerate(work.blocks):
            runs = _block(session, work, i, prompt, repetition)
            plain = runs[0]
            if plain.get("token_ids"):
                answers.setdefault(prompt.id, plain)
            yield {"type": "block", "rows": [_without_ids(run, plain) for run in runs]}
        # before the reading below, which no ordinary run does
        pair["peak_rss_bytes"] = _peak_rss_bytes()
        for prompt in work.predict:
            yield _doing(f"predicting {prompt.id}")
            plain = answers.get(prompt.id) or _run(session, work, work.settings[0], prompt, 0)
            if plain.get("token_ids"):
                yield _prediction(session, work, prompt, plain, costs)
        outlook = session.outlook()
        pair |= {"outlook": outlook.details if outlook else None, "notes": session.notes}
        yield pair


def _doing(what: str) -> Row:
    return {"type": "doing", "what": what}


def _gpu_free_bytes() -> int:
    return sum(d.free_bytes for d in list_devices() if d.kind in ("gpu", "igpu"))


def _peak_rss_bytes() -> int | None:
    """The most memory that this process has held so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _milliseconds(table: CostTable, sizes: Sequence[int]) -> dict[str, float]:
    """The measured sizes alone, in milliseconds."""
    measured = [n for n in sizes if table.is_measured(n)]
    return {str(n): round(table.seconds(n) * 1e3, 4) for n in measured}


def _warm_up(session: Session, work: PairWork) -> None:
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


def _block(
    session: Session, work: PairWork, turn: int, prompt: BenchPrompt, repetition: int
) -> list[Row]:
    """One answer in every setting, plain first; which is run first changes from turn to turn."""
    settings = list(work.settings)
    first = turn % len(settings)
    runs = {}
    for setting in (*settings[first:], *settings[:first]):
        time.sleep(work.delay_s)
        runs[setting.name] = _run(session, work, setting, prompt, repetition)
    return [runs[setting.name] for setting in settings]


def _without_ids(run: Row, plain: Row) -> Row:
    """As it is kept: whether the text is plain's stands in place of its ids."""
    row = {name: value for name, value in run.items() if name != "token_ids"}
    return {**row, "same_as_plain": run.get("token_ids") == plain.get("token_ids")}


def _run(
    session: Session, work: PairWork, setting: Setting, prompt: BenchPrompt, repetition: int
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
    verified: list[int] = []
    first_s: float | None = None
    started = perf_counter()
    try:
        for event in session.stream(prompt.question, **options):
            if isinstance(event, Round):
                if first_s is None:
                    first_s = perf_counter() - started
                _count(event, accepted, verified)
            elif isinstance(event, Finished):
                return {
                    **head,
                    **_figures(event),
                    "ttft_s": first_s,
                    "accepted_by_position": accepted,
                    "judged_by_position": verified,
                }
    except LocalspecError as error:
        return {**head, "error": str(error)}
    raise AssertionError("a stream ends with Finished")


def _figures(finished: Finished) -> Row:
    stats = finished.stats
    return {
        "token_ids": list(finished.token_ids),
        "n_prompt": stats.prompt_n + stats.cache_n,
        "n_gen": stats.predicted_n,
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


def _count(event: Round, accepted: list[int], verified: list[int]) -> None:
    """Add a round to accepted and verified, by position in the draft."""
    for i, token in enumerate(event.tokens[: event.n_draft]):
        if token.verdict not in ("accepted", "rejected"):
            continue
        if i == len(verified):
            verified.append(0)
            accepted.append(0)
        verified[i] += 1
        accepted[i] += token.verdict == "accepted"


def _prediction(
    session: Session, work: PairWork, prompt: BenchPrompt, plain: Row, costs: Mapping[str, Any]
) -> Row:
    positions = session.read_positions(prompt.question, plain["token_ids"])
    return {
        "type": "prediction",
        "prompt": prompt.id,
        "category": prompt.category,
        "n_gen": len(positions),
        "plain_ts": plain["avg_ts"],
        **predict(
            session.encode(prompt.question),
            positions,
            costs,
            is_greedy=work.answering.get("temperature") == 0,
            n_drafts=[s.options["n_draft"] for s in work.settings if "n_draft" in s.options],
        ),
    }
