"""What an answer must follow: which option says it how, and what is refused before a model runs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from localspec.errors import EngineError, InvalidOptionError
from localspec.sampling.structured import answer_grammar
from localspec.session.options import Options
from tests.byte_grammar import matcher, takes


@pytest.mark.parametrize(
    ("given", "right", "wrong"),
    [
        ({"choices": ["a", "ab", 'x/"\n🎈']}, ["a", "ab", 'x/"\n🎈'], ["", "b", "aab"]),
        ({"regex": r"\d{4}-[a-z/]+|é+"}, ["2024-a/b", "é", "éé"], ["٢٠٢٤-a", "2024-", "e"]),
        ({"regex": r"^(?i:yes)$"}, ["yes", "YES"], ["yes!"]),
        ({"regex": "a.c"}, ["abc", "aéc"], ["a\nc"]),
        ({"grammar": 'root ::= "a"+'}, ["a", "aa"], ["", "b"]),
        ({"grammar": 'start: "a" b\nb: /[0-9]+/'}, ["a1"], ["a"]),
        ({"grammar": '%llguidance {}\nstart: item\nitem: "x" | "(" item ")"'}, ["((x))"], ["(x"]),
        ({"grammar": '# start: a comment\nroot ::= "x"'}, ["x"], []),
        ({"json_schema": True}, ["null", '{"a": [1, "b"]}'], ["nul", "[1,2]", '{"a":1}', "[ ]"]),
        ({"json_schema": '{"type": "null"}'}, ["null"], ["1"]),
        ({"json_schema": {"x-order": 3, "title": "t", "type": "null"}}, ["null"], []),
        ({"json_schema": {"properties": {"a": {}}}}, ["{}", '{"a": 1}'], ["1", '{"b": 1}']),
        ({"json_schema": {"properties": {"a": {}}, "required": ["b", "a"]}},
         ['{"a": 2, "b": 1}'], ['{"a": 2}', '{"a": 2, "b": 1, "c": 3}']),
        ({"json_schema": {"$defs": {"n": {"properties": {"x": {"type": "null"}}}}, "allOf": [
            {"$ref": "#/$defs/n"}, {"properties": {"y": {"type": "null"}}}]}},
         ['{"x": null, "y": null}', '{"y": null}'], ['{"z": null}', '{"x": 1}']),
        ({"json_schema": {"type": "object", "properties": {"a": {}},
                          "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}},
         ['{"a": 1}', '{"b": 1}'], ["{}"]),
        ({"json_schema": {"properties": {"a": {}}, "additionalProperties": True}},
         ['{"b": 1}'], []),
        ({"json_schema": {"oneOf": [{"const": i} for i in range(2000)]}}, ["1999"], ["2000"]),
        ({"json_schema": {"type": "string", "format": "time"}}, ['"23:59:59Z"'], ['"23:59:60Z"']),
        ({"json_schema": {"x-guidance": {"lenient": True, "whitespace_flexible": True}}},
         ["[1, 2]"], ["[1,  2]"]),
    ],
    ids=str,
)  # fmt: skip
def test_what_each_option_means(given: dict[str, Any], right: list[str], wrong: list[str]) -> None:
    grammar = answer_grammar(**given)
    for text in right:
        assert takes(grammar, text), text
    for text in wrong:
        assert not takes(grammar, text), text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"choices": []}, "not empty"),
        ({"choices": "yes"}, "list of texts"),
        ({"choices": ["a", ""]}, "holds ''"),
        ({"choices": ["a", 3]}, "holds 3"),
        ({"choices": ["\ud800"]}, "no token can spell"),
        ({"grammar": 'root ::= "x"', "json_schema": {}}, "exclude each other"),
        ({"regex": "x", "choices": ["x"]}, "choices and regex exclude each other"),
        ({"grammar": 7}, "grammar is text"),
        ({"grammar": " \n"}, "grammar is empty"),
        ({"grammar": 'start: "a'}, "1(10)"),
        ({"grammar": "start: b"}, "b"),
        ({"grammar": "root ::= x"}, "nowhere defined"),
        ({"regex": "("}, "unclosed group"),
        ({"regex": "(?=x)y"}, "look-around"),
        ({"regex": r"(a)\1"}, "backreference"),
        ({"regex": r"(?-u:\xff)"}, "UTF-8"),
        ({"regex": 3}, "regex is text"),
        ({"json_schema": "{"}, "no JSON"),
        ({"json_schema": 7}, "takes a mapping"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "#: uniqueItems"),
        ({"json_schema": {"properties": {"a": {"items": {"contains": {}}}}}},
         "#/properties/a/items: contains"),
        ({"json_schema": {"not": {"type": "null"}}}, "not cannot be enforced"),
        ({"json_schema": {"if": {}, "then": {}}}, "if cannot be enforced"),
        ({"json_schema": {"maxLenght": 3}}, "maxLenght"),
        ({"json_schema": {"type": "thing"}}, "'thing' is unknown"),
        ({"json_schema": {"type": "object", "nullable": True}}, "nullable"),
        ({"json_schema": {"enum": []}}, "not empty"),
        ({"json_schema": {"allOf": []}}, "not empty"),
        ({"json_schema": {"items": [{}]}}, "a schema is an object"),
        ({"json_schema": {"$ref": "http://example.org/x.json"}}, "example.org"),
        ({"json_schema": {"$ref": "#/$defs/none"}}, "none"),
        ({"json_schema": {"pattern": "(?=x)"}}, "look-around"),
        ({"json_schema": {"pattern": "["}}, "unclosed"),
        ({"json_schema": {"type": "integer", "minimum": 3, "maximum": 2}}, "minimum"),
        ({"json_schema": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}, "oneOf"),
        ({"json_schema": {"oneOf": [{"const": 1}, {"enum": [2, 1]}]}}, "several branches"),
        ({"json_schema": {"allOf": [{"type": "string"}, {"type": "null"}]}}, "nsatisfiable"),
        ({"json_schema": False}, "false"),
        ({"json_schema": {"const": "\0"}}, "control character"),
        ({"json_schema": {"additionalProperties": {}, "minProperties": 2}}, "minProperties"),
        ({"json_schema": {"const": float("nan")}}, "nan"),
        ({"json_schema": {"const": {1, 2}}}, "set"),
        ({"json_schema": {"$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}]}
                                    for i in range(3000)} | {"a3000": {}}, "$ref": "#/$defs/a0"}},
         "too often"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        Options(**given)
    assert said in str(raised.value)


def test_a_format_that_is_not_enforced_is_told() -> None:
    made = answer_grammar(json_schema={"type": "string", "format": "iri"})
    assert made is not None
    assert "iri" in made.notes[0]
    assert takes(made, '"any text"')


@pytest.mark.parametrize("key", ['"\\u0061ge"', '"a\\u0067e"'])
def test_a_further_property_cannot_take_the_name_of_a_listed_one(key: str) -> None:
    """llguidance tells names apart by their spelling, and JSON has several for most letters."""
    schema = {"properties": {"age": {"type": "integer"}}, "additionalProperties": {"type": "null"}}
    assert takes(answer_grammar(json_schema=schema), '{"agent": null}')
    assert not takes(answer_grammar(json_schema=schema), f"{{{key}: null}}")


def test_a_model_class_gives_its_schema_as_plain_data() -> None:
    class Point:
        @staticmethod
        def model_json_schema() -> dict[str, object]:
            return {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

    assert Options(json_schema=Point).json_schema == Point.model_json_schema()
    assert takes(answer_grammar(Point), '{"x": 1}')


def test_nothing_is_imported_that_nothing_needs() -> None:
    code = (
        "import sys, localspec; localspec.Options(temperature=0.5); "
        "print('llguidance' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


def repeated(template: str, n: int, end: str) -> str:
    return "\n".join([*(template.format(i, i + 1) for i in range(n)), end.format(n)])


ENDLESS: dict[str, dict[str, Any]] = {
    "groups in Lark": {"grammar": "start: " + "(" * 100_000 + '"a"' + ")" * 100_000},
    "groups in GBNF": {"grammar": "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000},
    "groups in a regex": {"regex": "(" * 100_000 + "a" + ")" * 100_000},
    "rules in Lark": {"grammar": "start: a0\n" + repeated('a{}: a{} "x"', 20_000, 'a{}: "x"')},
    "a chain of rules": {"grammar": "start: A0\n" + repeated('A{}: A{} "x"', 4_900, 'A{}: "x"')},
    "doubling in Lark": {"grammar": "start: A0\n" + repeated("A{0}: A{1} A{1}", 40, 'A{}: "x"')},
    "doubling in GBNF": {
        "grammar": "root ::= a0\n" + repeated("a{0} ::= a{1} a{1}", 40, 'a{} ::= "x"')
    },
    "a rule of itself": {"grammar": "start: start"},
    "no end": {"grammar": 'start: "a" start'},
    "left recursion": {"grammar": 'root ::= root "x" | "y"'},
    "many meanings": {"grammar": 'root ::= root root | "a" | ""'},
    "a long repetition": {"grammar": 'root ::= "a"{1000000}'},
    "repetitions of repetitions": {"regex": "((a{1,200}){1,200}){1,200}"},
    "many states": {"regex": "(a|b)*a(a|b){400}c"},
    "patterns together": {
        "json_schema": {"allOf": [{"pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(8, 20)]}
    },
    "a schema of itself": {"json_schema": {"$ref": "#"}},
    "deep schemas": {"json_schema": '{"items":' * 50_000 + "{}" + "}" * 50_000},
    "large schemas": {"json_schema": {"anyOf": [{"minLength": i} for i in range(50_000)]}},
    "a chain of $ref": {
        "json_schema": {
            "$ref": "#/$defs/0",
            "$defs": {str(i): {"items": {"$ref": f"#/$defs/{i + 1}"}} for i in range(3_000)}
            | {"3000": {}},
        }
    },
    "large tuples": {"json_schema": {"prefixItems": [{"enum": list(range(50))}] * 3_000}},
}


@pytest.mark.parametrize("case", ENDLESS)
def test_no_grammar_hangs_or_crashes(case: str) -> None:
    """Each compiles and can be followed, or is a named error in seconds; on a small stack too."""
    found: list[object] = []

    def follow() -> None:
        try:
            here = matcher(answer_grammar(**ENDLESS[case]))
            for _ in range(50):
                allowed = [i for i in here.allowed().nonzero()[0].tolist() if i < 256]
                if not allowed:
                    break
                here.consume(allowed[:1])
            found.append("followed")
        except (InvalidOptionError, EngineError) as error:
            found.append(error)

    before = threading.stack_size(512 * 1024)
    started = time.perf_counter()
    thread = threading.Thread(target=follow)
    thread.start()
    threading.stack_size(before)
    thread.join(60)
    assert found, f"{case}: nothing after {time.perf_counter() - started:.1f} s"
    assert time.perf_counter() - started < 10.0  # 2 on an idle machine


def test_a_grammar_that_compiles_for_ever_is_not_waited_for() -> None:
    code = (
        "import localspec.sampling.structured as s\n"
        "s._MOST_SECONDS = 0.2\n"
        "try: s.answer_grammar({'allOf': [{'pattern': '(a|b)*a(a|b){%d}' % i}"
        " for i in range(8, 40)]})\n"
        "except s.InvalidOptionError as error: print(error)\n"
        "import os; os._exit(0)"  # the compiler itself cannot be stopped
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "did not compile in 0.2 seconds" in ended.stdout


def test_a_dead_end_is_no_end_of_the_matcher() -> None:
    """Where no token spells what must follow, the mask is empty and tokens can be taken back."""
    import llguidance

    class Few:
        tokens = (b"a", b"b", b"\xff<end>")
        special_token_ids = (2,)
        eos_token_id, bos_token_id = 2, None

        def __call__(self, text: bytes) -> list[int]:
            return []

    from localspec.sampling.structured import Matcher

    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Few()), eos_token=[2])
    grammar = answer_grammar(grammar='root ::= "a" ("b" | "ac")')
    assert grammar is not None
    here = Matcher(grammar, tokenizer)
    assert here.consume([0, 1]) == 2
    here.rollback(1)  # what was taken back is not read again by the matcher that is made anew
    assert here.consume([0]) == 1
    assert not here.allowed().any()
    assert not here.may_end
    here.rollback(1)
    assert here.allowed().tolist() == [True, True, False]
    assert here.consume([1]) == 1
    assert here.may_end
