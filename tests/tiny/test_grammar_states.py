"""Grammars over a tiny vocabulary: what is allowed where, and masks as the samplers use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from localspec.errors import InvalidOptionError
from localspec.llama.model import Model
from localspec.llama.vocabulary import Vocabulary
from localspec.sampling.chain import distribution
from localspec.sampling.constraint import Constraint, Position
from localspec.sampling.mask import best_allowed
from localspec.sampling.params import SamplingParams
from localspec.sampling.structured import Matcher, answer_grammar
from tests import tiny_models
from tests.byte_grammar import takes
from tests.tiny_models import BOS, EOS, FIRST_BYTE, IM_END, IM_START

ENDS = (EOS, IM_END)  # llama.cpp takes both for the end


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocabulary]:
    path = tiny_models.write_llama(tmp_path_factory.mktemp("g") / "t.gguf", vocab="bytes")
    with Model(Path(path)) as model:
        yield model.vocabulary


def start(vocabulary: Vocabulary, **wanted: Any) -> Constraint:
    found = answer_grammar(**wanted)
    assert found is not None
    matcher = Matcher(found, vocabulary.grammar_tokenizer)
    return Constraint(matcher, vocabulary.spell, vocabulary.piece)


def ids_of(text: str) -> list[int]:
    """A text token by token, a byte each."""
    return [FIRST_BYTE + byte for byte in text.encode()]


def at(states: Constraint, text: str) -> Position:
    found = states.after(ids_of(text))
    assert found is not None
    return found


def allowed_at(position: Position) -> list[int]:
    return np.flatnonzero(position.allowed).tolist()


def test_nothing_but_ends_is_valid_behind_an_end(vocabulary: Vocabulary) -> None:
    states = start(vocabulary, choices=["a", "ab"])
    a, b = ids_of("ab")
    assert states.n_valid([a, EOS, IM_END]) == 3
    assert states.n_valid([a, EOS, b]) == 2
    assert states.n_valid([a, EOS, IM_END, b, EOS]) == 3


def test_a_position_says_what_may_follow(vocabulary: Vocabulary) -> None:
    states = start(vocabulary, choices=["yes", "no", "nothing"])
    assert not states.committed.may_end
    assert states.after(ids_of("yesno")) is None
    assert at(states, "no").may_end
    assert not at(states, "no").must_end
    assert at(states, "nothing").must_end
    assert allowed_at(at(states, "nothing")) == list(vocabulary.eog_ids)


def test_a_forbidden_token_leads_nowhere(vocabulary: Vocabulary) -> None:
    states = start(vocabulary, choices=["yes"])
    assert states.after(ids_of("x")) is None
    assert states.after([EOS]) is None
    assert states.after([BOS]) is None
    assert states.n_valid([*ids_of("yes"), EOS]) == 4
    assert states.n_valid([*ids_of("ye"), EOS]) == 2


@pytest.mark.parametrize("end", ENDS)
def test_every_token_that_ends_an_answer_does(vocabulary: Vocabulary, end: int) -> None:
    """Not the one EOS alone; behind it, nothing but an end makes sense."""
    states = start(vocabulary, regex="a+")
    over = states.after([*ids_of("aa"), end])
    assert over is not None
    assert over.must_end
    assert allowed_at(over) == list(vocabulary.eog_ids)
    assert states.after([*ids_of("a"), end, *ids_of("a")]) is None


def test_a_grammar_needs_no_end_in_the_vocabulary(vocabulary: Vocabulary) -> None:
    """A base model may have none: the answer ends where the grammar does."""

    class Endless:
        eog_ids = ()
        markers = vocabulary.markers
        n_tokens = vocabulary.n_tokens
        piece = staticmethod(vocabulary.piece)
        spelled = staticmethod(vocabulary.spelled)

    tokenizer = Vocabulary.grammar_tokenizer.func(Endless())  # type: ignore[attr-defined]
    found = answer_grammar(choices=["ab"])
    assert found is not None
    states = Constraint(Matcher(found, tokenizer), vocabulary.spell, vocabulary.piece)
    assert at(states, "ab").must_end


@pytest.mark.parametrize(
    "characters",
    ["\\x01-\\U0010FFFF", "à-ü", "ࠀ-\\uD7FF", "\\U00010000-\\U0010FFFF", '^"'],
    ids=ascii,
)
def test_every_text_is_well_formed(vocabulary: Vocabulary, characters: str) -> None:
    """No overlong form, surrogate, value above U+10FFFF or half a character, and no dead end."""
    rng = np.random.default_rng(4)
    n_wide = 0
    for _ in range(30):
        text = b""
        states = start(vocabulary, grammar=f"root ::= [{characters}]{{3}}")
        while not states.committed.must_end:
            token = int(rng.choice(np.setdiff1d(allowed_at(states.committed), ENDS)))
            text += vocabulary.piece(token)
            states.commit(token)
        assert len(text.decode("utf-8")) == 3
        n_wide += not text.isascii()
    assert n_wide > 0


def test_a_control_token_does_not_pass_for_its_name(vocabulary: Vocabulary) -> None:
    for wanted in ({"grammar": 'root ::= "<|im_start|>" | [<|a-z_>]+'}, {"regex": "[<|a-z_>]+"}):
        states = start(vocabulary, **wanted)
        assert states.after([IM_START]) is None
        assert at(states, "<|im_start|>").may_end


@pytest.mark.parametrize("named", [f"<[{IM_START}]>", "<|im_start|>"])
def test_a_named_token_is_taken(vocabulary: Vocabulary, named: str) -> None:
    for grammar in (f'root ::= {named} "x"', f'start: {named} "x"'):
        states = start(vocabulary, grammar=grammar)
        assert allowed_at(states.committed) == [IM_START]
        assert not states.forced(())
        after = states.after([IM_START, *ids_of("x")])
        assert after is not None
        assert after.must_end


@pytest.mark.parametrize("token", ["<|nowhere|>", "<[99999]>"])
def test_a_token_that_is_none_is_refused(vocabulary: Vocabulary, token: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"llguidance refuses"):
        start(vocabulary, grammar=f"root ::= {token}")


def test_forced_text_is_what_every_answer_has_next(vocabulary: Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["ab", "ac"]}, "é": {"type": "boolean"}},
        "required": ["name", "é"],
    }
    states = start(vocabulary, json_schema=schema)

    def forced(text: str) -> str:
        ids = states.forced(ids_of(text))
        return b"".join(map(vocabulary.piece, ids)).decode()

    assert forced("") == '{"name": "a'
    assert forced('{"na') == 'me": "a'
    assert forced('{"name": "ab') == '", "é": '
    assert forced('{"name": "ab", "é": true') == "}"
    assert forced('{"name": "ab", "é": true}') == ""
    for token in states.forced(()):
        states.commit(token)
    assert states.after(ids_of("b")) is not None


GRAMMARS = [
    'root ::= "yes" | "no" | "nothing"',
    'root ::= [^\\x01-\\x1F"\\\\]* "!"',
    'root ::= [^é]{0,4} "." [a-z ]*',
    'root ::= (" the" | " " [a-z]+){1,5} "?"',
    f'root ::= (<[{IM_START}]> | "in" | [a-z])+ "."',
    f"root ::= (!<[{FIRST_BYTE + 97}]>){{3}}",
]


def walk(states: Constraint, rng: np.random.Generator, n: int) -> Iterator[Position]:
    """Positions along a random text."""
    for _ in range(n):
        yield states.committed
        ids = np.setdiff1d(allowed_at(states.committed), ENDS)
        if not len(ids):
            return
        states.commit(int(rng.choice(ids)))


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_a_mask_is_what_each_token_alone_may_do(vocabulary: Vocabulary, grammar: str) -> None:
    """Asked one by one, every token gets the answer that the mask gives."""
    states = start(vocabulary, grammar=grammar)
    for here in walk(states, np.random.default_rng(1), 8):
        for token in range(0, vocabulary.n_tokens, 3):
            assert (states.n_valid([token]) == 1) == here.allowed[token], token


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {},
        {"top_k": 0, "min_p": 0.0},
        {"top_k": 3, "top_p": 1.0, "min_p": 0.0},
        {"top_n_sigma": 1.0},
        {"typical_p": 0.7},
        {"repeat_penalty": 1.3, "frequency_penalty": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_the_law_is_that_of_the_masked_row(
    vocabulary: Vocabulary, grammar: str, params: dict[str, float]
) -> None:
    """Looking at the best candidates first gives exactly the fully masked law."""
    rng = np.random.default_rng(2)
    settings = SamplingParams(**params)
    for here in walk(start(vocabulary, grammar=grammar), rng, 10):
        row = rng.normal(0.0, 3.0, vocabulary.n_tokens).astype(np.float32)
        masked = np.where(here.allowed, row, -np.inf).astype(np.float32)
        history = rng.integers(0, 60, 30).tolist()
        got = distribution(row, settings, history, mask=here.allowed)
        expected = distribution(masked, settings, history)
        kept = expected.probs > 0.0
        assert got.ids[got.probs > 0.0].tolist() == expected.ids[kept].tolist()
        assert got.probs[got.probs > 0.0] == pytest.approx(expected.probs[kept], abs=1e-12)


def test_the_best_allowed_are_found_beyond_the_first_look() -> None:
    mask = np.arange(1200) >= 900
    logits = -np.arange(1000, dtype=np.float32)  # the allowed ones are the worst
    assert sorted(best_allowed(logits, mask, 3).tolist()) == [900, 901, 902]
    assert len(best_allowed(logits, mask, 500)) == 100  # ids beyond the row are left out
    short = np.ones(4, np.bool_)  # and those that the mask does not know
    assert sorted(best_allowed(logits, short, 9).tolist()) == [0, 1, 2, 3]


SCHEMAS: list[tuple[object, list[object], list[str]]] = [
    ({"type": "boolean"}, [True, False], ["null", "True", "1"]),
    ({"type": "integer"}, [0, -7, 1234567890], ["1.5", "01", "+1", "1e3"]),
    ({"type": "number"}, [0, -7.25, 1e10, 0.001], ["01", ".5", "1.", "NaN"]),
    ({"type": "string"}, ["", "a\"b\\c\n", "é🎈"], ['"\\u0001"', '"a', '"\n"', "'a'", '"\\ud800"']),
    ({"enum": ["a\"b", "x\\y", 3, None, "é🎈", "l\nn"]}, ["a\"b", "x\\y", 3, None, "é🎈", "l\nn"],
     ['"a"', "4"]),
    ({"const": {"a": [1, True]}}, [{"a": [1, True]}], ['{"a": [1]}']),
    ({"type": "integer", "minimum": -5, "maximum": 17}, list(range(-5, 18)), ["-6", "18", "171"]),
    ({"type": "integer", "exclusiveMinimum": 99, "maximum": 1234}, [100, 999, 1000, 1234],
     ["99", "1235", "-100", "0"]),
    ({"type": "number", "minimum": 0, "maximum": 1}, [0, 0.5, 1, 0.999, 1.0],
     ["-0.1", "1.01", "2"]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 2.75}, [0.1, 1, 2.75, 2, 0.05],
     ["0", "0.0", "2.76", "2.8", "3", "-1"]),
    ({"type": "number", "minimum": -1.5, "exclusiveMaximum": 1.25}, [-1.5, -1, 0, 1.249, 0.5],
     ["-1.51", "1.25", "1.3", "2", "-2"]),
    ({"type": "number", "minimum": 1.25, "maximum": 1.5}, [1.25, 1.3, 1.5, 1.49], ["1.24", "1.51"]),
    ({"type": "number", "minimum": 3}, [3, 3.5, 10, 12345.5], ["2.9", "-3", "0"]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
     [[1], [1, 2], [1, 2, 3]], ["[]", "[1, 2, 3, 4]", "[1,2]"]),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False,
      "minItems": 2}, [["a", 1]], ['["a"]', '["a", 1, 2]', '[1, "a"]']),
    ({"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "boolean"}},
     [[], [None], [None, True, False]], ["[true]", "[null, null]"]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"},
      "c": {"type": "boolean"}}, "required": ["b"]},
     [{"b": None}, {"a": 1, "b": None}, {"b": None, "c": True}, {"a": 1, "b": None, "c": False}],
     ['{"a": 1}', "{}", '{"b": null, "a": 1}', '{"b": null, "x": 1}', '{, "b": null}']),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}},
     [{}, {"a": 1}, {"b": None}, {"a": 1, "b": None}], ['{"b": null, "a": 1}', '{"a": 1, }']),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"x": 1, "y": 2}],
     ['{"x": "1"}']),
    ({"type": "object", "properties": {"age": {"type": "integer"}},
      "additionalProperties": {"type": "string"}},
     [{"age": 3}, {"age": 3, "ag": "x"}, {"agent": "x"}, {"": "x"}, {"b": "x"}],
     ['{"age": "x"}', '{"x": 3}', '{"\\u0061ge": "x"}']),
    ({}, [None, [1, "a", {"b": []}], {"a": {}}, "x"], ["[1 ]", "{'a': 1}"]),
    ({"type": ["string", "null"], "maxLength": 2}, [None, "", "ab", "é🎈"], ['"abc"', "1"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc", "\\\\"], ['"a"', '"abcd"']),
    ({"type": "string", "pattern": "^[A-Z]{2}-\\d+(x|yz)?$"}, ["AB-1", "AB-12x", "ZZ-0yz"],
     ['"AB"', '"ab-1"', '"AB-1 "', '"AB-1z"']),
    ({"type": "string", "pattern": "b+"}, ["b", "abba", "xb"], ['"a"', '""']),
    ({"type": "string", "pattern": "^(\"|\\\\|[^a])$"}, ['"', "\\", "z", "é"], ['"a"', '"zz"']),
    ({"type": "string", "format": "date"}, ["2024-02-28", "1999-12-31"], ['"2024-02-30"', '"x"']),
    ({"type": "string", "format": "date-time"}, ["2024-02-28T23:59:59Z"], ['"2024-02-28"']),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ['"x"']),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ['"x"']),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
        "v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
        "required": ["v", "next"]}}},
     [{"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": None}}], ['{"v": 1}']),
    ({"allOf": [{"$ref": "#/$defs/a"}, {"type": "object", "properties": {"y": {"type": "null"}},
      "required": ["y"]}], "$defs": {"a": {"type": "object",
      "properties": {"x": {"type": "integer"}}, "required": ["x"]}}},
     [{"x": 1, "y": None}], ['{"x": 1}', '{"y": null}']),
    ({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "n": {"type": "integer"}},
                 "required": ["k", "n"]},
                {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]},
     [{"k": "a", "n": 1}, {"k": "b"}], ['{"k": "a"}', '{"k": "c"}']),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "right", "wrong"), SCHEMAS, ids=range(len(SCHEMAS)))
def test_a_schema_takes_its_instances_and_no_others(
    schema: object, right: list[object], wrong: list[str]
) -> None:
    grammar = answer_grammar(json_schema=schema)
    for value in right:
        assert jsonschema.Draft202012Validator(schema).is_valid(value)  # type: ignore[arg-type]
        text = json.dumps(value, ensure_ascii=False)
        assert takes(grammar, text), text
    for text in wrong:
        assert not takes(grammar, text), text


@pytest.mark.parametrize("schema", [case[0] for case in SCHEMAS], ids=range(len(SCHEMAS)))
def test_whatever_a_schemas_grammar_writes_is_an_instance(
    vocabulary: Vocabulary, schema: Any
) -> None:
    rng = np.random.default_rng(3)
    for _ in range(12):
        states, text = start(vocabulary, json_schema=schema), b""
        while not (here := states.committed).must_end and not (here.may_end and rng.random() < 0.3):
            if len(text) > 600:
                pytest.fail(f"no end comes: {text!r}")
            ids = np.setdiff1d(allowed_at(here), ENDS)
            closing = [
                t for t in ids.tolist() if vocabulary.piece(t) in (b'"', b"}", b"]", b"0", b"b")
            ]
            late = len(text) > 40 and closing and rng.random() < 0.7
            token = int(rng.choice(closing if late else ids))
            states.commit(token)
            text += vocabulary.piece(token)
        value = json.loads(text.decode("utf-8"), parse_constant=_refuse)
        assert jsonschema.Draft202012Validator(schema).is_valid(value), text


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
