"""GBNF: what is read, what is said of the rest, and that the language stays the same in Lark."""

from __future__ import annotations

import functools
import itertools
import random

import pytest

from localspec.errors import InvalidOptionError
from localspec.sampling.gbnf import Chars, Choice, Node, Repeat, Rule, Seq, read_gbnf
from localspec.sampling.gbnf_to_lark import gbnf_to_lark
from localspec.sampling.structured import answer_grammar
from tests.byte_grammar import START, matcher, takes

BAD = [
    ("hello", "::="),
    ('start ::= "x"', "no rule named root"),
    ("root ::= item", "'item' is used but nowhere defined"),
    ('root ::= "x', "no closing quote"),
    ("root ::= [a-z", "no closing ]"),
    ("root ::= []", "empty"),
    ("root ::= [z-a]", "backwards"),
    ("root ::= [\\uD800-\\uDFFF]", "no character"),
    ('root ::= "\\uD800"', "surrogate"),
    ('root ::= ("x"', "no closing )"),
    ('root ::= "\\q"', "unknown escape"),
    ('root ::= "\\x4"', "unknown escape"),
    ('root ::= "\\U00110000"', "no character"),
    ("root ::= *", "nothing stands before"),
    ('root ::= ""*', "nothing stands before"),
    ('root ::= "a"{5,2}', "ends before it begins"),
    ('root ::= "a"{,3}', "is written"),
    ('root ::= "a"\nroot ::= "b"', "defined twice"),
    ('root ::= "a" ; "b"', "unexpected ';'"),
    ('root ::= "a\0b"', "NUL"),
    ("root ::= <think", "token is written"),
    ("root ::= <[x]>", "token id"),
    ("root ::= !<|start|>", "given by its id"),
    ("root ::= " + "(" * 200 + '"x"' + ")" * 200, "nested"),
    ("root ::= root", "never ends"),
    ('root ::= a "x"\na ::= "b" root', "never ends"),
    ("\n".join(["root ::= a0", *(f'a{i} ::= "x"' for i in range(2000))]), "1,000 rules"),
    ('root ::= a\n^', "line 2, column 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD, ids=range(len(BAD)))
def test_grammars_that_are_refused_say_why(text: str, said: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        gbnf_to_lark(text)
    assert said in str(raised.value)


def sentence(rules: dict[str, Node], text: str) -> bool:
    """By definition: the ends that a rule can reach from each place, grown until they settle."""
    known: dict[tuple[str, int], frozenset[int]] = {}

    def ends(node: Node, at: int) -> set[int]:
        if isinstance(node, Chars):
            fits = at < len(text) and any(a <= ord(text[at]) <= b for a, b in node.ranges)
            return {at + 1} if fits else set()
        if isinstance(node, Rule):
            return set(known.setdefault((node.name, at), frozenset()))
        if isinstance(node, Choice):
            return set().union(*(ends(part, at) for part in node.parts))
        if isinstance(node, Seq):
            return functools.reduce(
                lambda here, part: set().union(*(ends(part, i) for i in here)), node.parts, {at}
            )
        assert isinstance(node, Repeat)
        here, found = {at}, {at} if node.low == 0 else set()
        for n in range(1, len(text) + node.low + 2 if node.high is None else node.high + 1):
            here = set().union(*(ends(node.part, i) for i in here))
            found |= here if n >= node.low else set()
        return found

    while True:
        before = dict(known)
        found = ends(rules["root"], 0)
        for name, at in list(known):
            known[name, at] = frozenset(ends(rules[name], at))
        if known == before:
            return len(text) in found


SAME = [  # recursion or not, lexemes that could swallow what follows, left recursion, empty parts
    'root ::= [a-c]* "c"',
    'root ::= "a" root "b" | [bc]*',
    'root ::= "(" ([a-c]* "b" | root)* ")"',
    'root ::= list "c"?\nlist ::= list "," item | item\nitem ::= [ab]+ | "(" list ")"',
    'root ::= x "b" | "(" root ")"\nx ::= "a"? y{1,2}\ny ::= "a" | "ab" | ""',
    'root ::= ("ab" | "a"){2,3} (root | "c"{0,2}) "b"?',
    'root ::= word ("," root)? | "(" root ")"\nword ::= "a" [abc]* # a comment\n',
    'root ::= root root | "a" | "(" "b"* ")"',
    "root ::= [^a(]+ [ab] | . root .",
    'root ::= ("a" |\n "b")+ ","? \n\n',
]


@pytest.mark.parametrize("text", SAME)
def test_the_language_stays_the_same(text: str) -> None:
    """Every text of up to three characters, and many of six, against the definition."""
    rules, grammar = read_gbnf(text), answer_grammar(grammar=text)
    n_sentences = 0
    for n in range(4):
        for chars in itertools.product("abc,()", repeat=n):
            wanted = sentence(rules, "".join(chars))
            assert takes(grammar, "".join(chars)) == wanted, chars
            n_sentences += wanted
    rng = random.Random(1)
    for _ in range(300):
        chars = rng.choices("aabbc,()", k=6)
        wanted = sentence(rules, "".join(chars))
        assert takes(grammar, "".join(chars)) == wanted, chars
        n_sentences += wanted
    assert n_sentences > 1


def test_characters_beyond_ascii_and_escapes() -> None:
    grammar = answer_grammar(grammar='root ::= [é-ü\\u4E00-\\u9FFF]{2} "\\n\\x41\\"" [^è\\t\\]]')
    assert takes(grammar, 'éê\nA"x')
    assert takes(grammar, '漢ü\nA"ê')
    for text in ('éê\nA"è', 'éè\nA"x', 'éê\nA"\t', 'éê\nA"]', 'é\nA"x'):
        assert not takes(grammar, text)


def test_recursion_beside_tokens() -> None:
    grammar = answer_grammar(grammar='root ::= <|start|> "a" (root | !<[97]>)')
    for more in ([ord("b")], [START, ord("a"), ord("b")]):
        here = matcher(grammar)
        assert here.consume([START, ord("a"), *more]) == 2 + len(more)
        assert here.may_end
    assert matcher(grammar).consume([START, ord("a"), ord("a")]) == 2


def test_a_grammar_of_long_lexemes_has_few() -> None:
    """JSON is read by strings and numbers, not by characters, and in microseconds then."""
    text = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
    assert gbnf_to_lark(text).count("\nT") < 12
    grammar = answer_grammar(grammar=text)
    assert takes(grammar, '{"a": [1, -2.5e3, "x\\u00e9"],\n\t"b": {}}')
    assert not takes(grammar, '{"a": 01}')
