"""llama.cpp's grammar language, GBNF, read into rules (llama.cpp, grammars/README.md).

Says what is wrong with line and column. How the rules are followed is gbnf_to_lark.py's affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from localspec.errors import InvalidOptionError

__all__ = [
    "MAX_CODE",
    "Chars",
    "Choice",
    "Lexeme",
    "Node",
    "Repeat",
    "Rule",
    "Seq",
    "Token",
    "read_gbnf",
    "walk",
]

MAX_CODE = 0x10FFFF
_MAX_CHARS = 1_000_000
_MAX_DEPTH = 100
_ESCAPES = {"x": 2, "u": 4, "U": 8}
_PLAIN_ESCAPES = 'trn\\"[]-'
_SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of inclusive ranges of code points, sorted and apart."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What the rule of this name derives."""

    name: str


@dataclass(frozen=True, slots=True)
class Token:
    """A whole token, as `<[42]>` or `<|end|>`; any other one where it is negated."""

    text: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """From `low` to `high` times; None is without limit."""

    part: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A part without recursion or tokens that is read as one; regex: the same as text."""

    part: Node
    regex: str
    may_be_empty: bool


Node = Chars | Rule | Token | Seq | Choice | Repeat | Lexeme


def walk(node: Node) -> Iterator[Node]:
    """A part of a rule and the parts in it; not what its rules and lexemes are made of."""
    yield node
    if isinstance(node, (Seq, Choice)):
        for part in node.parts:
            yield from walk(part)
    elif isinstance(node, Repeat):
        yield from walk(node.part)


def read_gbnf(text: str) -> dict[str, Node]:
    """The rules by name, "root" among them; each that is used is there.

    Raises InvalidOptionError with line and column of what is wrong.
    """
    if len(text) > _MAX_CHARS:
        raise InvalidOptionError(
            f"the grammar has {len(text):,} characters: at most {_MAX_CHARS:,} are taken"
        )
    if any(_SURROGATES[0] <= ord(char) <= _SURROGATES[1] for char in text):
        raise InvalidOptionError("the grammar holds half a surrogate pair: no token can spell it")
    reader = _Reader(text)
    rules = reader.read()
    for name, at in reader.used.items():
        if name not in rules:
            raise reader.wrong(f"rule {name!r} is used but nowhere defined", at)
    if "root" not in rules:
        raise InvalidOptionError(
            "the grammar has no rule named root, with which an answer begins; it defines "
            + ", ".join(list(rules)[:8])
        )
    return rules


def _complement(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """All other code points, sorted."""
    found, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, MAX_CODE)) if start <= MAX_CODE else tuple(found)


def _class(ranges: Iterable[tuple[int, int]], *, negated: bool) -> Chars:
    """Surrogates, which are no characters, are left out."""
    others = ranges if negated else _complement(ranges)
    return Chars(_complement([*others, _SURROGATES]))


class _Reader:
    """Recursive descent, the same steps as llama_grammar_parser."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.used: dict[str, int] = {}

    def wrong(self, what: str, at: int | None = None) -> InvalidOptionError:
        """What is wrong at a place in the text, by default here."""
        place = self._at if at is None else at
        line = self._text.count("\n", 0, place) + 1
        column = place - self._text.rfind("\n", 0, place)
        return InvalidOptionError(f"grammar, line {line}, column {column}: {what}")

    def read(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        if "\0" in self._text:
            raise self.wrong("it holds a NUL character", self._text.index("\0"))
        self._space(newlines=True)
        while self._peek():
            start = self._at
            name = self._name()
            self._space(newlines=False)
            if not self._text.startswith("::=", self._at):
                raise self.wrong(f"`::=` is expected after {name!r}")
            self._at += 3
            if name in rules:
                raise self.wrong(f"rule {name!r} is defined twice", start)
            self._space(newlines=True)
            rules[name] = self._alternatives(nested=False)
            if self._peek() and self._peek() not in "\r\n":
                raise self.wrong(f"unexpected {self._peek()!r}: the end of rule {name!r} is due")
            self._space(newlines=True)
        return rules

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _space(self, *, newlines: bool) -> None:
        skipped = " \t\r\n" if newlines else " \t"
        while self._peek() and (self._peek() in skipped or self._peek() == "#"):
            if self._peek() == "#":
                while self._peek() and self._peek() not in "\r\n":
                    self._at += 1
            else:
                self._at += 1

    def _name(self) -> str:
        start = self._at
        while self._peek().isascii() and (self._peek().isalnum() or self._peek() == "-"):
            self._at += 1
        if self._at == start:
            raise self.wrong(f"a rule's name (letters, digits, -) is due, not {self._peek()!r}")
        return self._text[start : self._at]

    def _alternatives(self, *, nested: bool) -> Node:
        parts = [self._sequence(nested=nested)]
        while self._peek() == "|":
            self._at += 1
            self._space(newlines=True)
            parts.append(self._sequence(nested=nested))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, *, nested: bool) -> Node:
        parts: list[Node] = []
        repeatable: Node | None = None
        while char := self._peek():
            if char in "*+?{":
                if repeatable is None or repeatable == Seq(()):
                    raise self.wrong(f"nothing stands before {char!r} that could be repeated")
                low, high = self._repetition()
                parts[-1] = repeatable = Repeat(parts[-1], low, high)
            else:
                repeatable = self._item(char)
                if repeatable is None:
                    break
                parts.append(repeatable)
            self._space(newlines=nested)
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def _item(self, char: str) -> Node | None:
        if char == '"':
            return self._literal()
        if char == "[":
            return self._class()
        if char in "<!":
            return self._token()
        if char == "(":
            return self._group()
        if char == ".":
            self._at += 1
            return _class([], negated=True)
        if char.isascii() and (char.isalnum() or char == "-"):
            at = self._at
            name = self._name()
            self.used.setdefault(name, at)
            return Rule(name)
        return None

    def _literal(self) -> Node:
        start = self._at
        self._at += 1
        found: list[Node] = []
        while self._peek() != '"':
            if not self._peek():
                raise self.wrong("this literal has no closing quote", start)
            code = self._char()
            if _SURROGATES[0] <= code <= _SURROGATES[1]:
                raise self.wrong("half a surrogate pair: no token can spell it", start)
            found.append(Chars(((code, code),)))
        self._at += 1
        return Seq(tuple(found))

    def _class(self) -> Chars:
        start = self._at
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while self._peek() != "]":
            if not self._peek():
                raise self.wrong("this character class has no closing ]", start)
            low = high = self._char()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._char()
            if high < low:
                raise self.wrong(f"the range {chr(low)!r}-{chr(high)!r} runs backwards", start)
            ranges.append((low, high))
        self._at += 1
        if not ranges:
            raise self.wrong("this character class is empty: write . for any character", start)
        found = _class(ranges, negated=negated)
        if not found.ranges:
            raise self.wrong("this character class holds no character", start)
        return found

    def _char(self) -> int:
        char = self._peek()
        if not char:
            raise self.wrong("the grammar ends in the middle of a literal or class")
        self._at += 1
        if char != "\\":
            return ord(char)
        kind = self._peek()
        if kind and kind in _PLAIN_ESCAPES:
            self._at += 1
            return ord({"t": "\t", "r": "\r", "n": "\n"}.get(kind, kind))
        n = _ESCAPES.get(kind, 0)
        digits = self._text[self._at + 1 : self._at + 1 + n]
        if not n or len(digits) != n or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise self.wrong(
                f"unknown escape \\{kind}{digits}: GBNF has \\xHH \\uHHHH \\UHHHHHHHH \\t \\n \\r"
            )
        self._at += 1 + n
        code = int(digits, 16)
        if code > MAX_CODE:
            raise self.wrong(f"\\{kind}{digits} is no character")
        return code

    def _token(self) -> Token:
        start = self._at
        negated = self._peek() == "!"
        self._at += negated
        end = self._text.find(">", self._at)
        inner = self._text[self._at + 1 : end]
        if self._peek() != "<" or end < 0 or not inner or "\n" in inner:
            raise self.wrong("a token is written <text> or <[id]>, ! in front for any other", start)
        if inner.startswith("[") and not (inner.endswith("]") and inner[1:-1].isdecimal()):
            raise self.wrong("a token id is written <[42]>", start)
        self._at = end + 1
        return Token(f"<{inner}>", negated)

    def _group(self) -> Node:
        start = self._at
        self._at += 1
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.wrong(f"groups are nested more than {_MAX_DEPTH} deep", start)
        self._space(newlines=True)
        found = self._alternatives(nested=True)
        if self._peek() != ")":
            raise self.wrong("this group has no closing )", start)
        self._at += 1
        self._depth -= 1
        return found

    def _repetition(self) -> tuple[int, int | None]:
        """(least, most) of the operator here."""
        start = self._at
        char = self._peek()
        self._at += 1
        if char != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        end = self._text.find("}", self._at)
        inner = self._text[self._at : max(end, self._at)]
        low, comma, high = (part.strip() for part in inner.partition(","))
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            raise self.wrong("a repetition is written {3}, {3,} or {3,5}", start)
        least = int(low)
        most = int(high) if high else None if comma else least
        if most is not None and most < least:
            raise self.wrong(f"the repetition {{{inner}}} ends before it begins", start)
        self._at = end + 1
        return least, most
