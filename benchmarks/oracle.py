"""How near the controller comes to the best that its draft model allows, by category.

Answers every prompt greedily, records a trace of each, and replays it: plain, every fixed K, the
controller (its experience kept from answer to answer, as in a session), the best causal rule found
in hindsight for the category, and the clairvoyant oracle. All on the costs recorded with the
trace, so that the shares do not depend on how busy the machine was.

    python benchmarks/oracle.py [--target REF] [--draft REF] [--per-category N] [--traces FOLDER]

With --reuse the traces that lie in the folder are read and nothing is run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from pathlib import Path

from hindsight import Hindsight, optimal

from localspec.bench.replay import oracle, replay_adaptive, replay_fixed
from localspec.bench.trace import Recording, read_trace, record
from localspec.control.expected_value import Experience
from localspec.models.references import pair_draft, resolve
from localspec.session.options import LoadOptions
from localspec.session.session import Session

PROMPTS = Path(__file__).parents[1] / "localspec" / "bench" / "prompts.jsonl"
FIXED = range(17)


def record_all(args: argparse.Namespace) -> None:
    """One trace for each prompt, named after its id."""
    target = resolve(args.target, role="target")
    reference = pair_draft(args.target) if args.draft == "auto" else args.draft
    draft = resolve(str(reference), role="draft")
    args.traces.mkdir(parents=True, exist_ok=True)
    seen: dict[str, int] = defaultdict(int)
    with Session(target, draft, LoadOptions(n_ctx=4096)) as session:
        for line in PROMPTS.read_text("utf-8").splitlines():
            row = json.loads(line)
            seen[row["category"]] += 1
            if seen[row["category"]] > args.per_category:
                continue
            session.clear_cache()
            message = [{"role": "user", "content": row["prompt"]}]
            options = {"temperature": 0.0, "max_tokens": args.max_tokens, "drafter": "splice"}
            events = list(session.stream(message, **options))
            record(session, args.traces / f"{row['id']}.jsonl", message, options, events)
            print(row["id"], flush=True)


def report(folder: Path) -> str:
    """A Markdown table of shares, geometric means over the prompts of each category."""
    by_category: dict[str, list[Recording]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        by_category[path.stem.rsplit("-", 1)[0]].append(read_trace(path))
    experience = {True: Experience(), False: Experience()}
    for recordings in by_category.values():  # a first pass, so that no category comes cold
        for recording in recordings:
            for use_copies, known in experience.items():
                replay_adaptive(recording, use_copies=use_copies, experience=known)
    lines = [
        "| category | prompts | oracle / plain | controller / oracle | best causal / oracle | "
        "controller / best causal | controller / best fixed K | splice / plain |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for category, recordings in by_category.items():
        hindsight = Hindsight(recordings)
        columns: list[list[float]] = [[] for _ in range(6)]
        for recording in recordings:
            plain = replay_fixed(recording, 0).tokens_per_s
            fixed = max(replay_fixed(recording, k).tokens_per_s for k in FIXED)
            best = oracle(recording).tokens_per_s
            causal = optimal(recording, hindsight).tokens_per_s
            ours = replay_adaptive(
                recording, use_copies=False, experience=experience[False]
            ).tokens_per_s
            splice = replay_adaptive(recording, experience=experience[True]).tokens_per_s
            shares = (best / plain, ours / best, causal / best, ours / causal, ours / fixed,
                      splice / plain)  # fmt: skip
            for column, share in zip(columns, shares, strict=True):
                column.append(share)
        cells = " | ".join(f"{_mean(column):.2f}" for column in columns)
        lines.append(f"| {category} | {len(recordings)} | {cells} |")
    return "\n".join(lines)


def _mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--target", default="default")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--per-category", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--traces", type=Path, default=Path("traces"))
    parser.add_argument("--reuse", action="store_true")
    args = parser.parse_args()
    if not args.reuse:
        record_all(args)
    print(report(args.traces))


if __name__ == "__main__":
    main()
