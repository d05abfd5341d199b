"""Cases, section H: grammar and JSON with speculation."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from localspec.decoding.events import Round
from localspec.session.session import Session


@pytest.fixture(scope="module")
def session(ending_pair: Session) -> Session:
    return ending_pair


NULLABLE = {
    "type": "object",
    "properties": {"a": {"type": ["string", "null"], "maxLength": 4}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
}
OBJECTS = {"type": "array", "items": NULLABLE, "minItems": 2, "maxItems": 4}


def valid(text: str, schema: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))


def test_a_drafted_token_outside_the_grammar_does_not_break_the_parser(session: Session) -> None:
    """A nullable field; drafts whose states are thrown away when they are refused."""
    refused = 0
    for seed in range(12):
        events = list(session.stream("the", json_schema=NULLABLE, seed=seed, n_draft=4,
                                     temperature=1.2, max_tokens=200))  # fmt: skip
        refused += sum(
            token.verdict == "rejected"
            for e in events
            if isinstance(e, Round)
            for token in e.tokens
        )
        text = "".join(event.text for event in events if isinstance(event, Round))
        assert valid(text, NULLABLE)
    assert refused > 5


def test_an_array_of_objects_with_ngram_drafts_does_not_crash(session: Session) -> None:
    for seed in range(6):
        got = session.complete(
            "the", json_schema=OBJECTS, seed=seed, drafter="ngram", n_draft=5, max_tokens=400
        )
        assert valid(got.text, OBJECTS)


def test_constraints_are_kept_when_speculation_is_on(session: Session) -> None:
    """Fifty outputs of a target that was never taught JSON: all of them valid."""
    answers = [
        session.complete("the", json_schema=OBJECTS, seed=seed, n_draft=5, max_tokens=600)
        for seed in range(50)
    ]
    assert sum(valid(got.text, OBJECTS) for got in answers) == 50
    assert sum(got.stats.draft_n_accepted for got in answers) > 100


@pytest.mark.parametrize("drafter", ["ngram", "model", "splice"])
def test_the_parse_is_the_same_with_and_without_a_draft(session: Session, drafter: str) -> None:
    for seed in range(5):
        options = {"json_schema": OBJECTS, "seed": seed, "max_tokens": 400}
        plain = session.complete("the", drafter="none", **options)
        ours = session.complete("the", drafter=drafter, n_draft=5, **options)
        assert json.loads(ours.text) == json.loads(plain.text)
