"""The official JSON Schema test suite, draft 2020-12: enforced as it is meant, or refused by name.

json_schema_suite.json.gz is the suite itself, under the MIT licence that it holds. A document is
written as an answer would be, its properties in the schema's order and whole numbers without a
point. Formats are assertions here, which the draft allows.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import InvalidOptionError
from localspec.sampling import structured
from localspec.sampling.structured import answer_grammar
from tests.byte_grammar import takes

SUITE = json.loads(gzip.decompress((Path(__file__).parents[1] / "json_schema_suite.json.gz")
                                   .read_bytes()))["groups"]  # fmt: skip
CASES = [(keyword, group) for keyword, groups in SUITE.items() for group in groups]
MOST_ORDERS = 200


def spellings(value: Any) -> Iterator[Any]:
    """The value with its properties in every order, the first few of them."""
    if isinstance(value, dict):
        for keys in itertools.permutations(value):
            for inner in itertools.product(*(list(spellings(value[key])) for key in keys)):
                yield dict(zip(keys, inner, strict=True))
    elif isinstance(value, list):
        for inner in itertools.product(*(list(spellings(item)) for item in value)):
            yield list(inner)
    elif isinstance(value, float) and value.is_integer() and abs(value) < 2**60:
        yield int(value)
    else:
        yield value


def is_taken(grammar: structured.AnswerGrammar, value: Any) -> bool:
    return any(
        takes(grammar, json.dumps(spelled, ensure_ascii=False))
        for spelled in itertools.islice(spellings(value), MOST_ORDERS)
    )


def verdict(group: dict[str, Any]) -> str:
    try:
        grammar = answer_grammar(json_schema=group["schema"])
        assert grammar is not None
        found = {case["description"]: (case["valid"], is_taken(grammar, case["data"]))
                 for case in group["tests"]}  # fmt: skip
    except InvalidOptionError:
        return "refused"
    loose = [name for name, (valid, taken) in found.items() if taken and not valid]
    strict = [name for name, (valid, taken) in found.items() if valid and not taken]
    return f"takes {loose}" if loose else f"lacks {strict}" if strict else "right"


def test_the_whole_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the schemas say, without the narrowing that keeps small models from wandering."""
    monkeypatch.setattr(structured, "narrowed", lambda schema: schema)
    counts: Counter[str] = Counter()
    for keyword, group in CASES:
        found = verdict(group)
        if keyword == "format" and found.startswith("lacks ['invalid"):
            found = "right"
        counts[found.split()[0]] += 1
        assert found in ("right", "refused"), f"{keyword}: {group['description']}: {found}"
    assert counts["right"] >= 150, counts


def test_a_narrowed_schema_takes_nothing_more() -> None:
    n_right = 0
    for keyword, group in CASES:
        found = verdict(group)
        assert not found.startswith("takes"), f"{keyword}: {group['description']}: {found}"
        n_right += found == "right"
    assert n_right >= 60
