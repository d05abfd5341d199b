"""JSON under a dozen schemas: is every answer valid, and do drafts pay under a grammar?

Each prompt is answered plainly (the same grammar, no drafts) and with drafts, interleaved, the
order turning from one to the next, from the same seed and a cleared cache. Validity is by the
jsonschema package. An answer that max_tokens cut is counted apart: it is no whole sentence of the
grammar, and says so. The cost of a mask is taken along each plain answer: the mask itself, and what
the sampler does with it.

    python benchmarks/structured.py [--n 24] [--drafter auto] [--threads 1] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import jsonschema
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import localspec
from localspec.sampling.chain import distribution
from localspec.sampling.params import SamplingParams
from localspec.sampling.structured import Matcher, answer_grammar


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT, SHORT = {"type": "string", "maxLength": 80}, {"type": "string", "maxLength": 24}
WHOLE, SHARE, FLAG = {"type": "integer"}, {"type": "number", "minimum": 0, "maximum": 1}, {
    "type": "boolean"
}  # fmt: skip

TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "person": (
        "Invent a person with an address.",
        _object(
            name=SHORT,
            age={"type": "integer", "minimum": 0, "maximum": 120},
            address=_object(street=SHORT, city=SHORT, postal_code=SHORT),
            email={"anyOf": [SHORT, {"type": "null"}]},
        ),
    ),
    "recipe": (
        "Give a recipe for pancakes with four ingredients.",
        _object(
            title=SHORT,
            servings={"type": "integer", "minimum": 1, "maximum": 12},
            ingredients={
                "type": "array",
                "minItems": 4,
                "maxItems": 4,
                "items": _object(
                    name=SHORT, amount={"type": "number"}, unit={"enum": ["g", "ml", "piece"]}
                ),
            },
        ),
    ),
    "sentiment": (
        "Rate: 'The battery is great, but the screen scratches easily.'",
        _object(
            label={"enum": ["positive", "negative", "mixed"]},
            confidence=SHARE,
            aspects={
                "type": "array",
                "maxItems": 3,
                "items": _object(aspect=SHORT, label={"enum": ["positive", "negative"]}),
            },
        ),
    ),
    "function": (
        "Describe the signature of a Python function that downloads a file.",
        _object(
            name={"type": "string", "pattern": "^[a-z_]{3,24}$"},
            parameters={
                "type": "array",
                "minItems": 1,
                "maxItems": 4,
                "items": _object(
                    name=SHORT, type={"enum": ["str", "int", "bool", "float"]}, required=FLAG
                ),
            },
            returns=SHORT,
        ),
    ),
    "event": (
        "Plan a project kick-off meeting for three people.",
        _object(
            title=SHORT,
            start={"type": "string", "format": "date-time"},
            attendees={"type": "array", "minItems": 3, "maxItems": 3, "items": SHORT},
            remote=FLAG,
        ),
    ),
    "tree": (
        "Give a small category tree of animals.",
        {
            "$ref": "#/$defs/node",
            "$defs": {
                "node": _object(
                    name=SHORT,
                    children={"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/leaf"}},
                ),
                "leaf": _object(name=SHORT, legs={"type": "integer", "minimum": 0, "maximum": 8}),
            },
        },
    ),
    "shape": (
        "Describe a red circle of radius 2.5.",
        {
            "oneOf": [
                _object(
                    kind={"const": "circle"},
                    radius={"type": "number", "exclusiveMinimum": 0},
                    colour=SHORT,
                ),
                _object(
                    kind={"const": "square"},
                    side={"type": "number", "exclusiveMinimum": 0},
                    colour=SHORT,
                ),
            ]
        },
    ),
    "invoice": (
        "Write an invoice for two books.",
        _object(
            number={"type": "string", "pattern": "^INV-[0-9]{4}$"},
            date={"type": "string", "format": "date"},
            lines={
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "items": _object(
                    text=SHORT, quantity=WHOLE, unit_price={"type": "number", "minimum": 0}
                ),
            },
            paid=FLAG,
        ),
    ),
    "settings": (
        "Give sensible settings for a small web server.",
        _object(
            host=SHORT,
            port={"type": "integer", "minimum": 1, "maximum": 65535},
            tls={"anyOf": [_object(certificate=SHORT, key=SHORT), {"type": "null"}]},
            log_level={"enum": ["debug", "info", "warning", "error"]},
            workers={"type": "integer", "minimum": 1, "maximum": 64},
        ),
    ),
    "quiz": (
        "Make a quiz question about the solar system.",
        _object(
            question=TEXT,
            options={"type": "array", "minItems": 3, "maxItems": 3, "items": SHORT},
            answer={"type": "integer", "minimum": 0, "maximum": 2},
        ),
    ),
    "point": (
        "Where is Paris?",
        _object(
            name=SHORT,
            position={
                "type": "array",
                "prefixItems": [
                    {"type": "number", "minimum": -90, "maximum": 90},
                    {"type": "number", "minimum": -180, "maximum": 180},
                ],
                "items": False,
                "minItems": 2,
            },
            population=WHOLE,
        ),
    ),
    "review": (
        "Review this code: x = x + 1",
        {
            "allOf": [
                {"$ref": "#/$defs/base"},
                _object(
                    findings={
                        "type": "array",
                        "maxItems": 2,
                        "items": _object(
                            line=WHOLE, severity={"enum": ["low", "high"]}, message=TEXT
                        ),
                    }
                ),
            ],
            "$defs": {"base": _object(summary=TEXT, approved=FLAG)},
        },
    ),
}


def is_valid(text: str, schema: dict[str, Any]) -> bool:
    """Whether a text is JSON and an instance."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def mask_costs(
    session: localspec.Session, schema: Any, ids: Sequence[int]
) -> list[dict[str, float]]:
    """Along an answer, in seconds: the mask, and the law of a random row with it and without."""
    grammar = answer_grammar(json_schema=schema)
    assert grammar is not None
    vocabulary = session._pair.target.model.vocabulary
    matcher = Matcher(grammar, vocabulary.grammar_tokenizer)
    params, rng = SamplingParams(), np.random.default_rng(0)
    row = rng.normal(0.0, 3.0, vocabulary.n_tokens).astype(np.float32)
    found = []
    for token in ids:
        started = perf_counter()
        mask = matcher.allowed()
        asked = perf_counter()
        distribution(row, params, (), mask=mask)
        masked = perf_counter()
        distribution(row, params, ())
        free = perf_counter() - masked
        matcher.consume([token])
        found.append({"mask": asked - started, "law": masked - asked, "free": free})
    return found


def main() -> None:
    """Print one line for each schema, then the sums."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="default")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--n-draft", type=int)
    parser.add_argument("--n", type=int, default=24, help="generations of each kind")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, help="one JSON object a generation")
    args = parser.parse_args()
    loading = {"n_threads": args.threads, "n_ctx": 2048}
    with localspec.load(args.target, args.draft, **loading) as session:
        print(f"{session.target_path.name} on {session.device}, {session.n_threads} threads")
        rows = [row for i in range(args.n) for row in _pair(session, i, args)]
        costs = [cost for row in rows if row["kind"] == "plain"
                 for cost in mask_costs(session, TASKS[row["task"]][1], row["ids"])]  # fmt: skip
    if args.out:
        args.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _report(rows)
    for name, words in (("mask", "a mask"), ("law", "a law with it"), ("free", "one without")):
        times = [cost[name] * 1e3 for cost in costs]
        print(f"{words}: mean {statistics.mean(times):.3f} ms, median "
              f"{statistics.median(times):.3f}, largest {max(times):.2f}")  # fmt: skip


def _pair(session: localspec.Session, i: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    name = list(TASKS)[i % len(TASKS)]
    prompt, schema = TASKS[name]
    messages = [{"role": "user", "content": f"{prompt} Answer in JSON."}]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("plain", {"drafter": "none"}),
        ("drafts", {"drafter": args.drafter, "n_draft": args.n_draft}),
    ]
    rows = []
    for kind, how in kinds if i % 2 else kinds[::-1]:
        session.clear_cache()
        got = session.complete(
            messages,
            json_schema=schema,
            seed=i,
            temperature=args.temperature,
            max_tokens=args.max_tokens,
            **how,
        )
        stats = got.stats
        rows.append(
            {
                "task": name,
                "seed": i,
                "kind": kind,
                "valid": is_valid(got.text, schema),
                "complete": got.grammar_complete,
                "tokens": stats.predicted_n,
                "seconds": stats.predicted_s,
                "tokens_per_s": stats.predicted_per_second,
                "accepted": stats.draft_n_accepted,
                "judged": stats.draft_n_accepted + stats.draft_n_rejected,
                "tokens_per_pass": stats.tokens_per_pass,
                "other_s": stats.other_s,
                "text": got.text,
                "ids": list(got.token_ids),
            }
        )
        print(
            f"{i:3} {name:10} {kind:7} valid {rows[-1]['valid']!s:5} {stats.predicted_n:4} tokens "
            f"{stats.predicted_per_second:6.1f} tokens/s",
            flush=True,
        )
    return rows


def _report(rows: list[dict[str, Any]]) -> None:
    whole = [row for row in rows if row["complete"]]
    n_valid = sum(row["valid"] for row in whole)
    print(
        f"\n{len(rows)} generations: {len(whole)} complete, of which {n_valid} valid; "
        f"{len(rows) - len(whole)} cut by max_tokens"
    )
    ratios = []
    by_seed: dict[int, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], {})[row["kind"]] = row
    for pair in by_seed.values():
        ratios.append(pair["drafts"]["tokens_per_s"] / pair["plain"]["tokens_per_s"])
    same = sum(pair["drafts"]["text"] == pair["plain"]["text"] for pair in by_seed.values())
    drafted = [row for row in rows if row["kind"] == "drafts"]
    judged = sum(row["judged"] for row in drafted)
    share = sum(row["accepted"] for row in drafted) / judged if judged else 0.0
    print(f"drafts over plain: median {statistics.median(ratios):.2f}, least {min(ratios):.2f}; "
          f"the same text in {same} of {len(by_seed)}")  # fmt: skip
    print(f"accepted {share:.0%} of {judged} judged; tokens per pass "
          f"{statistics.mean(row['tokens_per_pass'] for row in drafted):.2f}")  # fmt: skip
    plain = [row for row in rows if row["kind"] == "plain"]
    cost = sum(row["other_s"] for row in plain) / sum(row["tokens"] for row in plain)
    print(f"grammar and sampling took {cost * 1e3:.2f} ms a token of plain decoding")


if __name__ == "__main__":
    main()
