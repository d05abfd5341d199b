"""What the grammar checker takes, and what it says about the rest."""

from __future__ import annotations

import pytest

from localspec.errors import InvalidOptionError
from localspec.grammar.gbnf import check_gbnf, literal
from localspec.grammar.wanted import wanted_grammar

GOOD = [
    'root ::= "yes" | "no"',
    'root ::= item+\nitem ::= "- " [^\\r\\n]+ "\\n"',
    'root ::= (a b)*  # comment\na ::= "x"\nb ::= [a-z0-9\\-_]{2,3}',
    'root ::= a |\n  b\na ::= "x"\nb ::= .',
    'root ::= ("a"?)* "b"',
    'root ::= ""',
    "root ::= [\\x00-\\x1F\\u00e9]".replace("\\x00", "\\x01"),
    'root ::= a\na ::= "(" a ")" | ""',
    "root ::= <[7]> !<[9]>* .",
    'root ::= "a"{3} "b"{2,} "c"{0,5} "d"{0}',
]

BAD = [
    ("", "empty"),
    ("hello", "::="),
    ('start ::= "x"', "no rule named root"),
    ("root ::= item", "'item' is used but nowhere defined"),
    ('root ::= "x', "no closing quote"),
    ("root ::= [a-z", "no closing ]"),
    ("root ::= []", "empty"),
    ("root ::= [z-a]", "backwards"),
    ('root ::= ("x"', "no closing )"),
    ('root ::= "\\q"', "unknown escape"),
    ('root ::= "\\x4"', "unknown escape"),
    ('root ::= "\\x00"', "no character"),
    ("root ::= *", "nothing stands before"),
    ('root ::= ""*', "nothing stands before"),
    ('root ::= "a"{5,2}', "ends before it begins"),
    ('root ::= "a"{0,3000}', "2,000"),
    ('root ::= ("a"{0,100}){100}', "multiply"),
    ('root ::= "a"{,3}', "is written"),
    ('root ::= root "x" | "y"', "left-recursive"),
    ('root ::= a "x"\na ::= b\nb ::= root | "y"', "left-recursive"),
    ('root ::= b root "x" | "y"\nb ::= d\nd ::= ""', "left-recursive"),
    ('root ::= (e)* root "x" | "y"\ne ::= "z"', "left-recursive"),
    ("root ::= root", "left-recursive"),
    ('root ::= "a"\nroot ::= "b"', "defined twice"),
    ('root ::= "a" ; "b"', "unexpected ';'"),
    ('root ::= "a\0b"', "NUL"),
    ("root ::= <think", "token is written"),
    ("root ::= <[x]>", "token id"),
    ("root ::= " + "(" * 200 + '"x"' + ")" * 200, "nested"),
]


@pytest.mark.parametrize("text", GOOD)
def test_grammars_that_are_taken(text: str) -> None:
    assert check_gbnf(text).text == text


@pytest.mark.parametrize(("text", "said"), BAD, ids=range(len(BAD)))
def test_grammars_that_are_refused_say_why(text: str, said: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        check_gbnf(text)
    assert said in str(raised.value)


def test_the_place_is_named() -> None:
    with pytest.raises(InvalidOptionError, match="line 2, column 7"):
        check_gbnf("root ::= a\na ::= ^")


def test_what_the_masks_must_know_is_found() -> None:
    assert check_gbnf("root ::= <[3]>").has_tokens
    assert check_gbnf("root ::= [^é]").excludes_beyond_ascii
    plain = check_gbnf('root ::= [^"\\\\] "é" [é-ü]')
    assert not plain.has_tokens
    assert not plain.excludes_beyond_ascii


def test_a_literal_spells_anything() -> None:
    spelled = "root ::= " + literal('a"b\\c\nd\te\x7f é 🎈')
    assert check_gbnf(spelled)
    assert "\n" not in spelled


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"choices": []}, "not empty"),
        ({"choices": "yes"}, "list of texts"),
        ({"choices": ["a", ""]}, "holds ''"),
        ({"choices": ["a", 3]}, "holds 3"),
        ({"choices": ["\ud800"]}, "no token can spell"),
        ({"grammar": 'root ::= "x"', "json_schema": {}}, "exclude each other"),
        ({"grammar": 7}, "GBNF as text"),
        ({"json_schema": "{"}, "no JSON"),
        ({"json_schema": 7}, "takes a mapping"),
    ],
)
def test_wrong_wishes_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        wanted_grammar(**given)


def test_nothing_wanted_is_no_grammar() -> None:
    assert wanted_grammar() is None


def test_a_model_class_gives_its_schema() -> None:
    class Point:
        @staticmethod
        def model_json_schema() -> dict[str, object]:
            return {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

    made = wanted_grammar(Point)
    assert made is not None
    assert '\\"x\\": ' in made.checked.text


def test_too_many_alternatives_are_refused() -> None:
    many = " | ".join(f'"w{i}"' for i in range(4_001))
    with pytest.raises(InvalidOptionError, match="more than 4,000 alternatives"):
        check_gbnf(f"root ::= {many}")
    check_gbnf(f"root ::= {many.rpartition(' | ')[0]}")
