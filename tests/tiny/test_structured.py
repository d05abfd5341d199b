"""Structured answers with drafts: valid, the same as plain, cheap where text is forced."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest

from localspec.decoding.events import Finished, Round
from localspec.errors import EngineError, InvalidOptionError
from localspec.session.session import Session
from tests import tiny_models
from tests.tiny.test_command import call

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "identifier": {"type": "integer", "minimum": 0, "maximum": 999},
        "nickname": {"anyOf": [{"type": "string", "maxLength": 6}, {"type": "null"}]},
        "children": {
            "type": "array",
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {"kind": {"enum": ["red", "green"]}, "size": {"type": "boolean"}},
                "required": ["kind", "size"],
            },
        },
    },
    "required": ["identifier", "nickname", "children"],
}


@pytest.fixture(scope="module")
def session(ending_pair: Session) -> Session:
    return ending_pair


@pytest.mark.parametrize(
    "how",
    [
        {"drafter": "none"},
        {"n_draft": 4, "verifier": "match"},
        {"n_draft": 4, "verifier": "rejection"},
        {"n_draft": 4, "verifier": "block"},
        {"drafter": "ngram", "n_draft": 6},
        {"drafter": "splice", "n_draft": 6},
        {"drafter": "splice"},
        {"n_draft": 3, "mirostat": 2},
        {"n_draft": 3, "xtc_probability": 0.5},
        {"n_draft": 3, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    ],
    ids=str,
)
def test_every_answer_is_valid(session: Session, how: dict[str, Any]) -> None:
    """A target that was never taught JSON."""
    for seed in range(8):
        got = session.complete(
            "the and", json_schema=SCHEMA, temperature=1.2, seed=seed, max_tokens=400, **how
        )
        assert got.reason == "eos"
        assert got.grammar_complete
        assert jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(got.text))


@pytest.mark.parametrize("n_draft", [1, 3, 8])
def test_drafts_change_nothing(session: Session, n_draft: int) -> None:
    for seed in range(6):
        options = {"json_schema": SCHEMA, "temperature": 1.0, "seed": seed, "max_tokens": 400}
        plain = session.complete("the and", drafter="none", **options)
        ours = session.complete("the and", n_draft=n_draft, drafter="splice", **options)
        assert ours.token_ids == plain.token_ids


def events_of(session: Session, **options: Any) -> tuple[list[Round], Finished]:
    events = list(session.stream("the and", **options))
    assert isinstance(events[-1], Finished)
    return [event for event in events if isinstance(event, Round)], events[-1]


def test_forced_text_is_drafted_for_nothing(session: Session) -> None:
    """Without a draft model, by the grammar alone; still judged by the target."""
    rounds, finished = events_of(
        session, json_schema=SCHEMA, seed=1, drafter="ngram", n_draft=8, max_tokens=400
    )
    sources = Counter((t.source, t.verdict) for r in rounds for t in r.tokens if t.committed)
    assert sources["grammar", "accepted"] > 5
    assert finished.stats.tokens_per_pass > 1.3
    assert all(
        token.q == 1.0 for r in rounds for t in r.tokens for token in [t] if t.source == "grammar"
    )


def test_no_guess_is_forbidden_by_the_grammar(session: Session) -> None:
    rounds, _ = events_of(session, json_schema=SCHEMA, seed=3, n_draft=5, max_tokens=400, top_k=0,
                          top_p=1.0, min_p=0.0)  # fmt: skip
    judged = [t for r in rounds for t in r.tokens if t.verdict in ("accepted", "rejected")]
    assert any(t.source == "model" for t in judged)
    assert all(t.p > 0.0 for t in judged)


def test_copies_end_where_the_grammar_does(session: Session) -> None:
    """The prompt invites copies that the grammar forbids."""
    prompt = 'the and of {"identifier": the and of {"identifier": the and'
    for seed in range(4):
        got = session.complete(
            prompt, json_schema=SCHEMA, seed=seed, drafter="ngram", n_draft=8, max_tokens=400
        )
        assert jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(got.text))


@pytest.mark.parametrize("drafter", ["none", "splice"])
def test_a_grammar_too_complex_to_follow_is_named_and_the_session_goes_on(
    session: Session, drafter: str
) -> None:
    with pytest.raises(EngineError, match="the grammar is too complex"):
        session.complete(
            "x",
            regex="b((a{1,200}){1,200}){1,200}",
            min_tokens=300,
            max_tokens=300,
            drafter=drafter,
        )
    assert session.complete("x", regex="[ab]{3}", drafter=drafter, max_tokens=9).grammar_complete


def test_a_regex_is_followed_with_drafts(session: Session) -> None:
    for seed in range(6):
        options = {"regex": r"(the|and|\d{2}){2,4}!", "seed": seed, "temperature": 1.3}
        plain = session.complete("the", drafter="none", max_tokens=90, **options)
        ours = session.complete("the", n_draft=4, max_tokens=90, **options)
        assert re.fullmatch(options["regex"], plain.text)
        assert ours.token_ids == plain.token_ids


def test_the_end_is_not_decoded(session: Session) -> None:
    got = session.complete("x", choices=["a"], max_tokens=5, drafter="none")
    assert (got.text, got.reason, got.stats.n_passes) == ("a", "eos", 1)


def test_choices_are_the_only_answers(session: Session) -> None:
    seen = Counter(
        session.complete("x", choices=["yes", "no", "not"], seed=s, temperature=1.5).text
        for s in range(40)
    )
    assert set(seen) == {"yes", "no", "not"}


def test_an_empty_sentence_ends_at_once(session: Session) -> None:
    got = session.complete("x", grammar='root ::= ""')
    assert (got.text, got.reason, got.grammar_complete) == ("", "eos", True)


def test_an_answer_that_was_cut_says_so(session: Session) -> None:
    got = session.complete("x", json_schema=SCHEMA, max_tokens=7, seed=1)
    assert got.reason == "length"
    assert got.grammar_complete is False
    assert any("cut before its text was complete" in note for note in got.stats.notes)


def test_an_answer_that_just_fits_is_complete(session: Session) -> None:
    got = session.complete("x", grammar='root ::= "abc"', max_tokens=3, drafter="none", seed=1)
    whole = session.complete("x", grammar='root ::= "abc"', seed=1, drafter="none")
    n = len(whole.token_ids)
    exact = session.complete("x", grammar='root ::= "abc"', max_tokens=n, drafter="none", seed=1)
    assert got.text == "abc"[: len(got.text)]
    assert (exact.reason, exact.grammar_complete) == ("eos", True)


def test_a_stop_string_cuts_too(session: Session) -> None:
    got = session.complete("x", json_schema=SCHEMA, stop='"nick', seed=2, max_tokens=400)
    assert got.reason == "stop"
    assert got.grammar_complete is False
    assert '"nick' not in got.text


def test_without_a_grammar_nothing_is_said_of_it(session: Session) -> None:
    assert session.complete("x", max_tokens=2).grammar_complete is None


def test_the_next_answer_is_free_again(session: Session) -> None:
    before = session.complete("the", max_tokens=20, temperature=0.0).text
    session.complete("the", choices=["yes"], drafter="ngram")
    assert session.complete("the", max_tokens=20, temperature=0.0).text == before


def test_min_tokens_and_ignore_eos_hold_the_end_back(session: Session) -> None:
    ends = [
        seed
        for seed in range(60)
        if session.complete("the", seed=seed, max_tokens=12, temperature=2.0, top_k=0).reason
        == "eos"
    ]
    assert ends, "a model that never ends proves nothing"
    for seed in ends[:4]:
        options = {"seed": seed, "max_tokens": 12, "temperature": 2.0, "top_k": 0}
        got = session.complete("the", min_tokens=12, **options)
        assert (got.reason, len(got.token_ids)) == ("length", 12)
        assert session.complete("the", ignore_eos=True, **options).reason == "length"


@pytest.mark.parametrize("held", [{"ignore_eos": True}, {"min_tokens": 12}])
@pytest.mark.parametrize("choices", [["yes", "no"], ["yes", "yes sir"], ["a", "ab"]])
def test_a_grammar_at_its_end_ends_the_answer_with_and_without_drafts(
    session: Session, choices: list[str], held: dict[str, Any]
) -> None:
    """A draft that reaches the end leaves a row behind it, in which no token is allowed."""
    for seed in range(4):
        options = {"choices": choices, "max_tokens": 20, "seed": seed, **held}
        plain = session.complete("the", drafter="none", **options)
        assert plain.text in choices
        for drafts in ({"n_draft": 4}, {"n_draft": 4, "drafter": "ngram"}, {}):
            got = session.complete("the", **options, **drafts)
            assert (got.text, got.reason) == (plain.text, "eos")


def test_a_stop_id_ends_the_answer(session: Session) -> None:
    whole = session.complete("the", temperature=0.0, max_tokens=10)
    got = session.complete("the", temperature=0.0, max_tokens=10, stop_ids=[whole.token_ids[4]])
    at = whole.token_ids.index(whole.token_ids[4])
    assert (got.reason, got.token_ids) == ("stop", whole.token_ids[:at])


@pytest.mark.parametrize("verifier", ["rejection", "block"])
@pytest.mark.parametrize("sampler", [{"mirostat": 1}, {"xtc_probability": 0.5}])
def test_samplers_without_a_closed_law_are_matched(
    session: Session, verifier: str, sampler: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOptionError, match="no closed distribution"):
        session.complete("x", verifier=verifier, **sampler)
    got = session.complete("x", max_tokens=4, n_draft=2, **sampler)
    assert got.stats.verifier == "match"
    assert any("verifier is match" in note for note in got.stats.notes)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"grammar": "root ::= x"}, "nowhere defined"),
        ({"grammar": "root ::= <|no-such-token|>"}, "llguidance refuses"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"json_schema": {}, "choices": ["a"]}, "exclude each other"),
        ({"choices": []}, "not empty"),
    ],
)
def test_what_cannot_be_kept_is_told_before_anything_runs(
    session: Session, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        session.stream("x", **wrong)
    got = session.complete("x", max_tokens=1, ignore_eos=True)
    assert len(got.token_ids) == 1  # and the session is free; half a character has no text


def test_the_command_takes_schemas_grammars_and_choices(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path
) -> None:
    base = ["run", "--target", tiny_target, "--draft", tiny_draft, "--raw", "-n", 300, "the"]

    def out(*more: object) -> subprocess.CompletedProcess[str]:
        return call(*base, *more)

    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    (tmp_path / "s.json").write_text(json.dumps(schema))
    (tmp_path / "g.gbnf").write_text('root ::= "ab" | "cd"')
    for given in (json.dumps(schema), tmp_path / "s.json"):
        assert json.loads(out("--json-schema", given).stdout)["a"] in (True, False)
    assert out("--grammar", tmp_path / "g.gbnf").stdout.strip() in ("ab", "cd")
    assert out("--choices", "yes, no").stdout.strip() in ("yes", "no")
    assert out("--regex", "yes|n[oi]").stdout.strip() in ("yes", "no", "ni")
    refused = out("--json-schema", '{"type": "x"}')
    assert refused.returncode == 2
    assert "#/type: 'x' is unknown" in refused.stderr
    assert out("--grammar", tmp_path / "none.gbnf").returncode == 2
    lines = out("--choices", "yes,no", "--logprobs", 2, "--json").stdout.splitlines()
    last = json.loads(lines[-1])
    assert last["grammar_complete"] is True
    assert len(last["logprobs"]) == len(last["token_ids"])


class Weather(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=12)
    wet: bool


def test_a_pydantic_class_is_a_schema_and_its_recipe_runs_again(session: Session) -> None:
    """The recipe carries the schema itself, so that it needs no class of a program."""
    session.clear_cache()
    first = session.complete("the", json_schema=Weather, seed=4, n_draft=4, max_tokens=80)
    assert first.grammar_complete is True
    assert Weather.model_validate_json(first.text)
    assert first.recipe is not None
    again = session.rerun(json.loads(first.recipe.to_json()))
    assert again.token_ids == first.token_ids
    assert first.to_dict()["grammar_complete"] is True


def test_a_class_that_is_no_schema_is_refused(session: Session) -> None:
    with pytest.raises(InvalidOptionError, match="pydantic model class"):
        session.complete("the", json_schema=dict, max_tokens=1)


DEEP: dict[str, object] = {}
for _ in range(300):
    DEEP = {"type": "object", "properties": {"a": DEEP}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("[" * 100_000, "nested more than 100 deep"),
        (DEEP, "nested more than 100 deep"),
        ({"const": "\ud800"}, "surrogate"),
        ({"type": "object", "properties": {"\ud800": {}}}, "surrogate"),
        ({"type": "object", "properties": {5: {"type": "null"}}}, "key 5 is no text"),
        ({"type": [["string"]]}, "type"),
        ({"type": "integer", "enum": [float("inf")]}, "#"),
        ({"type": "object", "properties": {"a": True}, "required": [["a"]]}, "required"),
        (
            {"allOf": [{"required": 5}, {"required": 6}]},
            "#/allOf/0/required: it is a list of names, not 5",
        ),
        (
            {"allOf": [{"properties": 5}, {"properties": 6}]},
            "#/allOf/0/properties: it is an object, not 5",
        ),
        ({"allOf": [{"minimum": "a"}, {"minimum": 5}]}, "minimum"),
        ({"oneOf": [{"required": 5}, {"required": 6}]}, "#/oneOf/0/required"),
        ({"oneOf": [{"type": 5}, {"type": {}}]}, "#/oneOf/0/type: 5 is unknown"),
        ({"type": "string", "format": []}, "format is"),
    ],
)
def test_schemas_that_are_none_are_named(schema: object, words: str, loose_pair: Session) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        loose_pair.complete("a", json_schema=schema, max_tokens=2)


def test_half_a_surrogate_pair_in_a_grammar_is_named(loose_pair: Session) -> None:
    with pytest.raises(InvalidOptionError, match="surrogate"):
        loose_pair.complete("a", grammar='root ::= "\ud800"', max_tokens=2)


@pytest.mark.parametrize("options", [{"logit_bias": {10**6: -5.0}}, {"logit_bias": {-1: 1.0}}])
def test_a_bias_on_no_token_is_told(session: Session, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match="logit_bias holds token id"):
        session.complete("the", max_tokens=1, **options)


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ('start: gen\ngen[stop="x"]: /.*/', "uses stop= or max_tokens="),
        ("start: x\nx[max_tokens=3]: /a+/", "uses stop= or max_tokens="),
        ('start: "ab" <|im_end|>', "names <|im_end|>, which ends an answer"),
        (f'root ::= "a" <[{tiny_models.EOS}]>', "which ends an answer"),
    ],
)
def test_grammars_that_drafts_or_ends_cannot_follow_are_refused(
    loose_pair: Session, grammar: str, words: str
) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(words)):
        loose_pair.complete("the", grammar=grammar, max_tokens=4)
    literal = 'root ::= "<|im_end|>"'  # in quotes it is text
    assert loose_pair.complete("the", grammar=literal, max_tokens=4).text.startswith("<|i")
