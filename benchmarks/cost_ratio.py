"""What a larger target would gain here: the controller over a range of D/T. Synthetic.

Writes copies of the target with identity layers (see identity_layers.py), so that the text stays
the same and only the cost grows, and runs plain and the controller on each, interleaved.

    python benchmarks/cost_ratio.py [--target REF] [--draft REF] [--times 1,2,4] [--work FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path

from identity_layers import add_identity_layers

from localspec.models.references import pair_draft, resolve
from localspec.session.options import LoadOptions
from localspec.session.session import Session

PROMPTS = Path(__file__).parents[1] / "localspec" / "bench" / "prompts.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--target", default="default")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--times", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2, 4])
    parser.add_argument("--category", action="append")
    parser.add_argument("--per-category", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--work", type=Path, help="keep the copies here")
    args = parser.parse_args()
    source = resolve(args.target, role="target")
    reference = pair_draft(args.target) if args.draft == "auto" else args.draft
    draft = resolve(str(reference), role="draft")
    rows = _prompts(args.category or ["code", "prose"], args.per_category)
    with tempfile.TemporaryDirectory(dir=args.work) as folder:
        print(f"SYNTHETIC: {source.name} with identity layers + {draft.name}, greedy")
        print("| depth | T(1) ms | D(1)/T(1) | category | plain tok/s | controller / plain | "
              "tokens/pass | drafted |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
        texts: dict[str, tuple[int, ...]] = {}
        for times in args.times:
            path = source
            if times > 1:
                path = add_identity_layers(source, Path(folder) / f"x{times}.gguf", times)
            with Session(path, draft, LoadOptions(n_ctx=2048)) as session:
                _measure(session, rows, args.max_tokens, times, texts)
            if times > 1:
                path.unlink()


def _prompts(categories: list[str], n: int) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in PROMPTS.read_text("utf-8").splitlines()]
    found = []
    for category in categories:
        found += [(category, row["prompt"]) for row in rows if row["category"] == category][:n]
    return found


def _measure(
    session: Session,
    rows: list[tuple[str, str]],
    n: int,
    times: int,
    texts: dict[str, tuple[int, ...]],
) -> None:
    costs = session.costs
    by_category: dict[str, list[tuple[float, float, float, int]]] = {}
    for i, (category, prompt) in enumerate([rows[0], *rows]):
        found = {}
        for drafter in ("none", "splice") if i % 2 else ("splice", "none"):
            session.clear_cache()
            message = [{"role": "user", "content": prompt}]
            found[drafter] = session.chat(message, max_tokens=n, temperature=0, drafter=drafter)
        plain, ours = found["none"], found["splice"]
        if texts.setdefault(prompt, plain.token_ids) != plain.token_ids:
            print(f"the text changed at depth x{times}: {prompt[:40]}…")
        if i:
            ratio = ours.stats.predicted_per_second / plain.stats.predicted_per_second
            by_category.setdefault(category, []).append(
                (
                    plain.stats.predicted_per_second,
                    ratio,
                    ours.stats.tokens_per_pass,
                    ours.stats.draft_n,
                )
            )
    t, d = costs.target.seconds(1), costs.draft.seconds(1)
    for category, found_rows in by_category.items():
        speeds, ratios, passes, drafted = zip(*found_rows, strict=True)
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
        print(f"| x{times} | {t * 1e3:.0f} | {d / t:.2f} | {category} | "
              f"{statistics.median(speeds):.2f} | {mean:.2f} | {statistics.fmean(passes):.2f} | "
              f"{sum(drafted)} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
