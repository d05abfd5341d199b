"""llama.cpp's grammar over a tiny vocabulary: its states, and masks made by asking little."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.schema_check import errors_of
from localspec.errors import InvalidOptionError
from localspec.grammar.gbnf import check_gbnf
from localspec.grammar.wanted import wanted_grammar
from localspec.llama.grammar import Grammar, GrammarState
from localspec.llama.model import Model
from localspec.llama.vocabulary import Vocabulary
from localspec.sampling.chain import distribution
from localspec.sampling.mask import best_allowed
from localspec.sampling.params import SamplingParams
from tests import tiny_models
from tests.tiny_models import BOS, EOS, FIRST_BYTE, IM_END, IM_START

ENDS = (EOS, IM_END)  # llama.cpp takes both for the end


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocabulary]:
    path = tiny_models.write_llama(tmp_path_factory.mktemp("g") / "t.gguf", vocab="bytes")
    with Model(Path(path)) as model:
        yield model.vocabulary


def start(vocabulary: Vocabulary, **wanted: object) -> GrammarState:
    found = wanted_grammar(**wanted)
    assert found is not None
    return Grammar(vocabulary, found.checked).start


def read(state: GrammarState, text: str) -> GrammarState | None:
    """The state behind a text, fed byte by byte."""
    here: GrammarState | None = state
    for byte in text.encode():
        if here is None:
            return None
        here = here.after(FIRST_BYTE + byte)
    return here


def takes(state: GrammarState, text: str) -> bool:
    end = read(state, text)
    return end is not None and end.may_end


def test_a_state_says_what_may_follow(vocabulary: Vocabulary) -> None:
    state = start(vocabulary, choices=["yes", "no", "nothing"])
    assert takes(state, "yes")
    assert takes(state, "no")
    assert not takes(state, "ye")
    assert not takes(state, "yesno")
    assert not state.may_end
    no = read(state, "no")
    assert no is not None
    assert no.may_end
    assert not no.must_end
    nothing = read(no, "thing")
    assert nothing is not None
    assert nothing.must_end
    assert nothing.allowed().tolist() == list(vocabulary.eog_ids)


def test_a_forbidden_token_leads_nowhere(vocabulary: Vocabulary) -> None:
    """llama_sampler_accept would end the process."""
    state = start(vocabulary, choices=["yes"])
    assert state.after(FIRST_BYTE + ord("x")) is None
    assert state.after(EOS) is None
    assert state.after(BOS) is None


def test_states_are_not_changed_by_what_follows(vocabulary: Vocabulary) -> None:
    state = start(vocabulary, grammar='root ::= "ab" | "ac"')
    first = state.allowed().tolist()
    after = state.after(FIRST_BYTE + ord("a"))
    assert after is not None
    assert after.after(FIRST_BYTE + ord("b")) is not None
    assert after.after(FIRST_BYTE + ord("c")) is not None
    assert state.allowed().tolist() == first


@pytest.mark.parametrize(
    "characters",
    ["\\x01-\\U0010FFFF", "à-ü", "ࠀ-\\uD7FF", "\\U00010000-\\U0010FFFF", '^"'],
    ids=ascii,
)
def test_every_text_is_well_formed(vocabulary: Vocabulary, characters: str) -> None:
    """llama.cpp counts an overlong form, a surrogate or a value above U+10FFFF as a character."""
    start_state = start(vocabulary, grammar=f"root ::= [{characters}]{{3}}")
    rng = np.random.default_rng(4)
    n_wide = 0
    for _ in range(60):
        text, state = b"", start_state
        while not state.must_end:
            token = int(rng.choice(np.setdiff1d(state.allowed(), ENDS)))  # never a dead end
            text += vocabulary.piece(token)
            following = state.after(token)
            assert following is not None
            state = following
        assert len(text.decode("utf-8")) == 3
        n_wide += not text.isascii()
    assert n_wide > 0


def test_a_control_token_does_not_pass_for_its_name(vocabulary: Vocabulary) -> None:
    state = start(vocabulary, grammar='root ::= "<|im_start|>" | [<|a-z_>]+')
    assert state.after(IM_START) is None
    assert takes(state, "<|im_start|>")


def test_a_named_token_is_taken(vocabulary: Vocabulary) -> None:
    state = start(vocabulary, grammar=f'root ::= <[{IM_START}]> "x"')
    after = state.after(IM_START)
    assert after is not None
    assert takes(after, "x")
    assert state.allowed().tolist() == [IM_START]
    assert not state.forced_bytes(9)


def test_a_token_that_is_none_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(InvalidOptionError, match=r"llama\.cpp refuses"):
        start(vocabulary, grammar="root ::= <|nowhere|>")


def test_forced_text_is_what_every_answer_has_next(vocabulary: Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["ab", "ac"]}, "é": {"type": "boolean"}},
        "required": ["name", "é"],
    }
    state = start(vocabulary, json_schema=schema)
    assert state.forced_bytes(96) == b'{"name": "a'
    assert state.forced_bytes(4) == b'{"na'
    after = read(state, '{"name": "ab')
    assert after is not None
    assert after.forced_bytes(96) == '", "é": '.encode()
    end = read(after, '", "é": true')
    assert end is not None
    assert end.forced_bytes(96) == b"}"
    over = read(end, "}")
    assert over is not None
    assert over.forced_bytes(96) == b""


GRAMMARS = [
    'root ::= "yes" | "no" | "nothing"',
    'root ::= [^\\x01-\\x1F"\\\\]* "!"',
    'root ::= [^é]{0,4} "." [a-z ]*',
    'root ::= [à-ü]+ " " [0-9]+',
    'root ::= (" the" | " " [a-z]+){1,5} "?"',
    f'root ::= (<[{IM_START}]> | "in" | [a-z])+ "."',
    f"root ::= (!<[{FIRST_BYTE + 97}]>){{3}}",
]


def walk(state: GrammarState, rng: np.random.Generator, n: int) -> Iterator[GrammarState]:
    """States along a random text."""
    for _ in range(n):
        yield state
        ids = state.allowed()
        ids = np.setdiff1d(ids, ENDS)
        if not len(ids):
            return
        following = state.after(int(rng.choice(ids)))
        assert following is not None
        state = following


def every_allowed(state: GrammarState, n: int) -> list[int]:
    ids = np.arange(n, dtype=np.int32)
    return ids[state.allows(ids)].tolist()


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_the_narrowed_mask_is_the_whole_one(vocabulary: Vocabulary, grammar: str) -> None:
    """`allowed` skips tokens by their first bytes; asking about every one says the same."""
    rng = np.random.default_rng(1)
    state = start(vocabulary, grammar=grammar)
    for _ in range(8):
        for here in walk(state, rng, 12):
            assert here.allowed().tolist() == every_allowed(here, vocabulary.n_tokens)


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
    """Asking about the best candidates first gives exactly the fully masked law."""
    rng = np.random.default_rng(2)
    settings = SamplingParams(**params)
    for here in walk(start(vocabulary, grammar=grammar), rng, 10):
        row = rng.normal(0.0, 3.0, vocabulary.n_tokens).astype(np.float32)
        masked = np.full_like(row, -np.inf)
        allowed = every_allowed(here, vocabulary.n_tokens)
        masked[allowed] = row[allowed]
        history = rng.integers(0, 60, 30).tolist()
        got = distribution(row, settings, history, mask=here)
        expected = distribution(masked, settings, history)
        kept = expected.probs > 0.0
        assert got.ids[got.probs > 0.0].tolist() == expected.ids[kept].tolist()
        assert got.probs[got.probs > 0.0] == pytest.approx(expected.probs[kept], abs=1e-12)


def test_the_best_allowed_are_found_beyond_the_first_look() -> None:
    class Odd:
        def allows(self, ids):  # type: ignore[no-untyped-def]
            return ids >= 900

        def allowed(self):  # type: ignore[no-untyped-def]
            return np.arange(900, 1200, dtype=np.int32)

    logits = -np.arange(1000, dtype=np.float32)  # the allowed ones are the worst
    assert sorted(best_allowed(logits, Odd(), 3).tolist()) == [900, 901, 902]
    assert len(best_allowed(logits, Odd(), 500)) == 100  # ids beyond the row are left out


SCHEMAS: list[tuple[object, list[object], list[str]]] = [
    ({"type": "boolean"}, [True, False], ["null", "True", "1"]),
    ({"type": "integer"}, [0, -7, 1234567890], ["1.5", "01", "+1", "1e3"]),
    ({"type": "number"}, [0, -7.25, 1e10, 0.001], ["01", ".5", "1.", "NaN"]),
    ({"type": "string"}, ["", "a\"b\\c\n", "é🎈", "\u0001"], ['"a', '"\n"', "'a'", '"\\ud800"']),
    ({"enum": ["a\"b", "x\\y", 3, None, "é🎈", "l\nn"]}, ["a\"b", "x\\y", 3, None, "é🎈", "l\nn"],
     ['"a"', "4"]),
    ({"const": {"a": [1, True]}}, [{"a": [1, True]}], ['{"a": [1]}']),
    ({"type": "integer", "minimum": -5, "maximum": 17}, list(range(-5, 18)), ["-6", "18", "171"]),
    ({"type": "integer", "exclusiveMinimum": 99, "maximum": 1234}, [100, 999, 1000, 1234],
     ["99", "1235", "-100", "0"]),
    ({"type": "number", "minimum": 0, "maximum": 1}, [0, 0.5, 1, 0.999, 1.0],
     ["-0.1", "1.01", "2"]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 2.75}, [0.1, 1, 2.75, 2.7, 2, 0.05],
     ["0", "0.0", "2.76", "2.8", "3", "-1"]),
    ({"type": "number", "minimum": -1.5, "exclusiveMaximum": 1.25}, [-1.5, -1, 0, 1.2, 1.249, 0.5],
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
    vocabulary: Vocabulary, schema: object, right: list[object], wrong: list[str]
) -> None:
    state = start(vocabulary, json_schema=schema)
    for value in right:
        text = json.dumps(value, ensure_ascii=False)
        assert errors_of(json.loads(text), schema) == []
        assert takes(state, text), text
    for text in wrong:
        assert not takes(state, text), text


@pytest.mark.parametrize("schema", [case[0] for case in SCHEMAS], ids=range(len(SCHEMAS)))
def test_whatever_a_schemas_grammar_writes_is_an_instance(
    vocabulary: Vocabulary, schema: object
) -> None:
    rng = np.random.default_rng(3)
    first = start(vocabulary, json_schema=schema)
    for _ in range(12):
        state, text = first, b""
        while not state.must_end and not (state.may_end and rng.random() < 0.3):
            if len(text) > 400:
                pytest.fail(f"no end comes: {text!r}")
            ids = state.allowed()
            ids = np.setdiff1d(ids, ENDS)
            closing = [
                t for t in ids.tolist() if vocabulary.piece(t) in (b'"', b"}", b"]", b"0", b"b")
            ]
            late = len(text) > 40 and closing and rng.random() < 0.7
            token = int(rng.choice(closing if late else ids))
            following = state.after(token)
            assert following is not None
            state, text = following, text + vocabulary.piece(token)
        value = json.loads(text.decode("utf-8", "replace"), parse_constant=_refuse)
        assert errors_of(value, schema) == [], text
        assert not isinstance(value, float) or math.isfinite(value)


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


REFUSED = [
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "object", "patternProperties": {}}, "patternProperties"),
    ({"not": {"type": "null"}}, "not"),
    ({"type": "integer", "multipleOf": 3}, "multipleOf"),
    ({"if": {}, "then": {}}, "if, then"),
    ({"type": "thing"}, "type 'thing' is unknown"),
    ({"enum": []}, "not empty"),
    ({"$ref": "http://example.org/x.json"}, "within the schema"),
    ({"$ref": "#/$defs/none"}, "leads nowhere"),
    ({"type": "string", "pattern": "(?=x)"}, "only (?:"),
    ({"type": "string", "pattern": "a\\b"}, "escape \\b"),
    ({"type": "string", "pattern": "["}, "no closing ]"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "no whole number"),
    ({"type": "object", "properties": {"a": {"type": "array", "contains": {}}}}, "properties/a"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "several branches of oneOf"),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, "cannot be merged"),
    ({"type": "object", "properties": {}, "required": ["x"]}, "'x' is required"),
    ({"$ref": "#"}, "left-recursive"),
    (False, "allows no value"),
    ({"type": "string", "maxLength": 5000}, "2,000"),
]


@pytest.mark.parametrize(("schema", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_kept_is_refused_by_name(schema: object, said: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        wanted_grammar(json_schema=schema)
    assert said in str(raised.value)


def test_a_format_that_is_not_enforced_is_told() -> None:
    made = wanted_grammar(json_schema={"type": "string", "format": "email"})
    assert made is not None
    assert "email" in made.notes[0]


def test_the_checker_and_llama_cpp_agree_on_what_can_run(vocabulary: Vocabulary) -> None:
    """Grammars on the edge of left recursion, which both must take."""
    for text in ('root ::= ("a"?)* "b"', 'root ::= a "x"\na ::= "b" a | ""', 'root ::= ""'):
        assert Grammar(vocabulary, check_gbnf(text)).start is not None
