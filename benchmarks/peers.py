"""Plain, fixed K, the controller and llama.cpp's own example over many prompts, interleaved.

Every prompt is answered by each setting in turn, caches cleared, in an order that rotates from
prompt to prompt; the first prompt is answered once more beforehand as a warm-up. Speeds are of
decoding alone (prefill apart). Speed-ups are ratios to plain on the same prompt in this run.

    python benchmarks/peers.py --target REF --draft REF [--prompts FILE …] [--per-category N]
        [--fixed 1,2,4,8] [--temperature 0] [--llama-speculative PATH] [--llama-bench PATH]
        [--out FOLDER]

Writes runs.jsonl (one line a run) and summary.md. Prompts: JSON lines with `id`, `category` and
`prompt`, or `turns`, of which the first is used.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from localspec.models.references import pair_draft, resolve
from localspec.session.options import LoadOptions
from localspec.session.session import Session

OWN_PROMPTS = Path(__file__).parents[1] / "localspec" / "bench" / "prompts.jsonl"
PEER_SETTINGS = ((3, 0.0), (5, 0.6), (8, 0.75), (16, 0.8))  # (n-max, p-min) of llama.cpp


class Peer:
    """llama.cpp's llama-speculative-simple, one process for each answer."""

    def __init__(self, tool: Path, target: Path, draft: Path, n_threads: int, n_ctx: int) -> None:
        self._words = [
            str(tool), "-m", str(target), "-md", str(draft), "-t", str(n_threads),
            "-td", str(n_threads), "-c", str(n_ctx), "--spec-type", "draft-simple",
            "-lm", "none",
        ]  # fmt: skip

    def run(self, text: str, n_gen: int, temperature: float, n_max: int, p_min: float) -> float:
        """Tokens per second of decoding, as the tool itself reports."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(text + "\n")  # the tool drops one line end
            file.flush()
            options = {"-f": file.name, "-n": n_gen, "--temp": temperature,
                       "--spec-draft-n-max": n_max, "--spec-draft-p-min": p_min}  # fmt: skip
            command = [*self._words, *(str(word) for pair in options.items() for word in pair)]
            ran = subprocess.run(command, capture_output=True, text=True, errors="replace")
        found = re.search(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds", ran.stdout + ran.stderr)
        if ran.returncode or not found:
            raise SystemExit(f"llama-speculative-simple failed:\n{ran.stderr[-2000:]}")
        return int(found[1]) / float(found[2])


def settings(args: argparse.Namespace, *, has_draft: bool) -> dict[str, dict[str, Any]]:
    """Options of each setting, plain first."""
    found: dict[str, dict[str, Any]] = {"plain": {"drafter": "none"}}
    for k in args.fixed if has_draft else ():
        found[f"fixed {k}"] = {"drafter": "model", "n_draft": k}
    found["controller"] = {"drafter": args.drafter}
    return found


def prompts(files: Iterable[Path], per_category: int, only: Sequence[str]) -> list[dict[str, Any]]:
    """Rows with id, category, prompt; at most per_category of each."""
    seen: dict[str, int] = defaultdict(int)
    found = []
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            row = json.loads(line)
            category = row["category"]
            if (only and category not in only) or seen[category] >= per_category:
                continue
            seen[category] += 1
            text = row["prompt"] if "prompt" in row else row["turns"][0]
            found.append({"id": row["id"], "category": category, "prompt": text})
    return found


def measure(session: Session, args: argparse.Namespace, peer: Peer | None, out: Any) -> list[Any]:
    """All runs, written as they are made."""
    rows = prompts(args.prompts or [OWN_PROMPTS], args.per_category, args.category)
    chosen = settings(args, has_draft=session.has_draft_model)
    names = list(chosen)
    runs = []
    for i, row in enumerate([rows[0], *rows]):
        message = [{"role": "user", "content": row["prompt"]}]
        order = names[i % len(names) :] + names[: i % len(names)]
        texts: dict[str, tuple[int, ...]] = {}
        made = []
        for name in order:
            session.clear_cache()
            result = session.chat(
                message,
                max_tokens=args.max_tokens,
                temperature=args.temperature,
                seed=1 if args.temperature and args.seeded else None,
                **chosen[name],
            )
            stats = result.stats
            texts[name] = result.token_ids
            made.append(
                {
                    **{key: row[key] for key in ("id", "category")},
                    "setting": name,
                    "tokens_per_s": stats.predicted_per_second,
                    **stats.timings(),
                    "drafter": stats.drafter,
                    "verifier": stats.verifier,
                    "n_judged": stats.draft_n_accepted + stats.draft_n_rejected,
                }
            )
        for run in made:
            run["same_as_plain"] = texts[run["setting"]] == texts["plain"]
        if peer is not None and (i or not args.skip_peer_warm_up):
            text = session.render(message)
            for n_max, p_min in args.peer_settings:
                speed = peer.run(text, args.max_tokens, args.temperature, n_max, p_min)
                made.append(
                    {
                        **{key: row[key] for key in ("id", "category")},
                        "setting": f"llama.cpp {n_max}/{p_min:g}",
                        "tokens_per_s": speed,
                    }
                )
        if i == 0:
            continue  # the warm-up
        for run in made:
            out.write(json.dumps(run) + "\n")
            out.flush()
        runs += made
        plain = next(run for run in made if run["setting"] == "plain")["tokens_per_s"]
        ratios = {run["setting"]: run["tokens_per_s"] / plain for run in made}
        shown = " ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items() if name != "plain")
        print(f"{i}/{len(rows)} {row['id']}: plain {plain:.1f} tokens/s; {shown}", flush=True)
    return runs


def summary(runs: Sequence[dict[str, Any]], title: str) -> str:
    """Markdown: geometric means of the ratios to plain, by category."""
    by_prompt: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for run in runs:
        by_prompt[run["category"], run["id"]][run["setting"]] = run
    names = list(dict.fromkeys(run["setting"] for run in runs))
    names.sort(key=lambda name: (name != "plain", name != "controller", not name.startswith("f")))
    categories = list(dict.fromkeys(category for category, _ in by_prompt))
    lines = [title, "", f"| category | prompts | {' | '.join(names)} |"]
    lines.append("|---|---|" + "---|" * len(names))
    for category in [*categories, "all"]:
        chosen = [s for (c, _), s in by_prompt.items() if category in ("all", c)]
        cells = [f"{statistics.median(s['plain']['tokens_per_s'] for s in chosen):.2f} tok/s"]
        for name in names[1:]:
            ratios = [s[name]["tokens_per_s"] / s["plain"]["tokens_per_s"] for s in chosen]
            cells.append(f"{_mean(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})")
        lines.append(f"| {category} | {len(chosen)} | {' | '.join(cells)} |")
    lines += [
        "",
        "Geometric mean of the speed over plain (least–most); plain: median tokens/s.",
        "",
    ]
    lines += ["| category | controller / best fixed K of each prompt | controller / best llama.cpp "
              "setting of the category | decoding time outside native decodes |",
              "|---|---|---|---|"]  # fmt: skip
    for category in [*categories, "all"]:
        chosen = [s for (c, _), s in by_prompt.items() if category in ("all", c)]
        lines.append(f"| {category} | {_against_fixed(chosen)} | {_against_peer(chosen)} | "
                     f"{_outside(chosen)} |")  # fmt: skip
    told = [
        s["controller"]["plain_ms"] / s["controller"]["predicted_ms"]
        / (s["controller"]["tokens_per_s"] / s["plain"]["tokens_per_s"])
        for s in by_prompt.values() if s["controller"].get("plain_ms")
    ]  # fmt: skip
    if told:
        lines += ["", "The speed-up that an answer tells of itself, over the measured one: median "
                  f"{statistics.median(told):.3f} ({min(told):.2f}–{max(told):.2f})."]  # fmt: skip
    same = [s["controller"]["same_as_plain"] for s in by_prompt.values()]
    lines += ["", f"Text the same as plain: {sum(same)} of {len(same)} prompts (greedy text may "
              "part at near ties; see exact mode)."]  # fmt: skip
    return "\n".join(lines) + "\n"


def _against_fixed(chosen: Sequence[dict[str, dict[str, Any]]]) -> str:
    ratios = []
    for s in chosen:
        fixed = [r["tokens_per_s"] for name, r in s.items() if name.startswith("fixed")]
        if fixed:
            best = max([*fixed, s["plain"]["tokens_per_s"]])
            ratios.append(s["controller"]["tokens_per_s"] / best)
    return f"{_mean(ratios):.2f}" if ratios else "–"


def _against_peer(chosen: Sequence[dict[str, dict[str, Any]]]) -> str:
    names = [name for name in chosen[0] if name.startswith("llama.cpp")]
    if not names:
        return "–"
    ours = _mean([s["controller"]["tokens_per_s"] for s in chosen])
    best = max(names, key=lambda name: _mean([s[name]["tokens_per_s"] for s in chosen]))
    return f"{ours / _mean([s[best]['tokens_per_s'] for s in chosen]):.2f} ({best})"


def _outside(chosen: Sequence[dict[str, dict[str, Any]]]) -> str:
    other = sum(s["controller"]["other_ms"] for s in chosen)
    return f"{other / sum(s['controller']['predicted_ms'] for s in chosen):.1%}"


def _mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def _pairs(text: str) -> list[tuple[int, float]]:
    return [(int(n), float(p)) for n, p in (word.split("/") for word in text.split(","))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--target", default="default")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--drafter", default="auto", help="of the controller")
    parser.add_argument("--prompts", type=Path, action="append")
    parser.add_argument("--category", action="append", default=[])
    parser.add_argument("--per-category", type=int, default=5)
    parser.add_argument("--fixed", type=lambda t: [int(k) for k in t.split(",") if k],
                        default=list(range(1, 9)))  # fmt: skip
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seeded", action="store_true", help="one seed, so verifier match")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--n-ctx", type=int, default=4096)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--llama-speculative", type=Path, metavar="PATH")
    parser.add_argument("--peer-settings", type=_pairs, default=list(PEER_SETTINGS),
                        help="n-max/p-min,… (default 3/0,5/0.6,8/0.75,16/0.8)")  # fmt: skip
    parser.add_argument("--skip-peer-warm-up", action="store_true")
    parser.add_argument("--llama-bench", type=Path, metavar="PATH")
    parser.add_argument("--note", default="", help="said in the title, such as what is synthetic")
    parser.add_argument("--out", type=Path, default=Path("peers"))
    args = parser.parse_args()
    target = resolve(args.target, role="target")
    reference = pair_draft(args.target) if args.draft == "auto" else args.draft
    draft = None if reference in (None, "none") else resolve(reference, role="draft")
    args.out.mkdir(parents=True, exist_ok=True)
    with Session(target, draft, LoadOptions(n_ctx=args.n_ctx, exact=args.exact)) as session:
        peer = None
        if args.llama_speculative and draft is not None:
            peer = Peer(args.llama_speculative, target, draft, session.n_threads, args.n_ctx)
        title = (
            f"{target.name} + {draft.name if draft else 'no draft model'}, {session.device}, "
            f"{session.n_threads} threads, temperature {args.temperature:g}, {args.max_tokens} "
            f"tokens{', exact mode' if args.exact else ''}{', ' + args.note if args.note else ''}"
        )
        if args.exact:
            print("exact sizes:", sorted(session.exact_sizes()))
        with (args.out / "runs.jsonl").open("w", encoding="utf-8") as out:
            runs = measure(session, args, peer, out)
        outlook = session.outlook()
    text = summary(runs, title)
    if outlook is not None:
        text += f"\n{outlook.details}\n"
    if args.llama_bench:
        text += "\n" + _llama_bench(args.llama_bench, target, session.n_threads) + "\n"
    (args.out / "summary.md").write_text(text, "utf-8")
    print(text)


def _llama_bench(tool: Path, target: Path, n_threads: int) -> str:
    command = [str(tool), "-m", str(target), "-t", str(n_threads), "-p", "0", "-n", "64", "-r", "3",
               "-lm", "none", "-o", "json"]  # fmt: skip
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return f"llama-bench tg64: {float(json.loads(ran.stdout)[0]['avg_ts']):.2f} tokens/s"


if __name__ == "__main__":
    main()
