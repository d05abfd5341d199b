"""Is a text a grammar in GBNF that llama.cpp can run? Found out here, before native code sees it.

llama.cpp's own parser (src/llama-grammar.cpp) prints to the terminal when it refuses, never ends on
a repetition such as {5,2}, takes {0,3000} for "without limit", and runs out of memory on a left
recursion behind a rule that may be empty. This one reads the same language and says what is wrong.

Knows nothing of vocabularies: whether a token in angle brackets exists is llama.cpp's to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.errors import InvalidOptionError

__all__ = ["Checked", "check_gbnf", "literal"]

_MAX_REPETITIONS = 2000  # llama-grammar.cpp, MAX_REPETITION_THRESHOLD
_MAX_DEPTH = 100
_MAX_CHARS = 1_000_000
_MAX_ALTERNATIVES = 4_000
_ESCAPES = {"x": 2, "u": 4, "U": 8}
_PLAIN_ESCAPES = 'trn\\"[]-'


@dataclass(slots=True)
class _Rule:
    """Alternatives, each a list of items: a rule's name, or None for what takes a character."""

    alternatives: list[list[str | None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Checked:
    """A grammar that llama.cpp can run.

    has_tokens: it names whole tokens (`<[42]>`, `<|end|>`, `!<…>`). excludes_beyond_ascii: a
    negated class holds a character above U+007F, so that half of such a character tells nothing.
    """

    text: str
    has_tokens: bool
    excludes_beyond_ascii: bool


def check_gbnf(text: str) -> Checked:
    """Read a grammar. Raises InvalidOptionError with line and column of what is wrong."""
    if not text.strip():
        raise InvalidOptionError("the grammar is empty: give GBNF with a rule named root")
    if len(text) > _MAX_CHARS:
        raise InvalidOptionError(
            f"the grammar has {len(text):,} characters: at most {_MAX_CHARS:,} are taken"
        )
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidOptionError("the grammar holds half a surrogate pair: no token can spell it")
    reader = _Reader(text)
    reader.read()
    for name, at in reader.used.items():
        if name not in reader.rules:
            reader.fail(f"rule {name!r} is used but nowhere defined", at)
    if "root" not in reader.rules:
        raise InvalidOptionError(
            "the grammar has no rule named root, with which an answer begins; it defines "
            + ", ".join(list(reader.rules)[:8])
        )
    loop = _left_recursion(reader.rules)
    if loop:
        raise InvalidOptionError(
            f"the grammar is left-recursive: rule {loop!r} can begin with itself. Let the "
            "repeated part come first, or write a repetition with *"
        )
    return Checked(text, reader.has_tokens, reader.excludes_beyond_ascii)


def literal(text: str) -> str:
    """A GBNF literal that matches exactly `text`."""
    return '"' + "".join(_spelled(char) for char in text) + '"'


def _spelled(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char < " " or char == "\x7f":
        return f"\\x{ord(char):02X}"
    return char


class _Reader:
    """Recursive descent over the grammar's text, the same steps as llama_grammar_parser."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._n_symbols = 0
        self._depth = 0
        self.rules: dict[str, _Rule] = {}
        self.used: dict[str, int] = {}
        self.has_tokens = False
        self.excludes_beyond_ascii = False

    def fail(self, what: str, at: int | None = None) -> None:
        """Raise InvalidOptionError for the place `at`."""
        place = self._at if at is None else at
        line = self._text.count("\n", 0, place) + 1
        column = place - self._text.rfind("\n", 0, place)
        raise InvalidOptionError(f"grammar, line {line}, column {column}: {what}")

    def read(self) -> None:
        nul = self._text.find("\0")
        if nul >= 0:
            self.fail("it holds a NUL character", nul)
        self._space(newlines=True)
        while self._peek():
            self._rule()

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

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
            self.fail(f"a rule's name (letters, digits, -) is expected, not {self._peek()!r}")
        return self._text[start : self._at]

    def _rule(self) -> None:
        start = self._at
        name = self._name()
        self._space(newlines=False)
        if not self._text.startswith("::=", self._at):
            self.fail(f"`::=` is expected after {name!r}")
        self._at += 3
        if name in self.rules:
            self.fail(f"rule {name!r} is defined twice", start)
        self._n_symbols += 1
        self._space(newlines=True)
        self.rules[name] = _Rule()
        self._alternatives(name, nested=False)
        if self._peek() and self._peek() not in "\r\n":
            self.fail(f"unexpected {self._peek()!r}: the end of rule {name!r} is expected")
        self._space(newlines=True)

    def _alternatives(self, name: str, *, nested: bool) -> None:
        rule = self.rules[name]
        rule.alternatives.append(self._sequence(nested=nested))
        while self._peek() == "|":
            self._at += 1
            self._space(newlines=True)
            rule.alternatives.append(self._sequence(nested=nested))
            if len(rule.alternatives) > _MAX_ALTERNATIVES:
                self.fail(
                    f"a rule has more than {_MAX_ALTERNATIVES:,} alternatives, each of which is "
                    "compared with every token: choose among fewer, or in two steps"
                )

    def _sequence(self, *, nested: bool) -> list[str | None]:
        items: list[str | None] = []
        last: list[str | None] = []
        weight = 1
        while self._peek():
            char = self._peek()
            if char in "*+?{":
                low, high = self._repetition()
                if not last:
                    self.fail(f"nothing stands before {char!r} that could be repeated")
                weight *= max(1, high or low)
                if weight > _MAX_REPETITIONS:
                    self.fail(f"repetitions multiply to more than {_MAX_REPETITIONS:,} rules")
                del items[len(items) - len(last) :]
                last = self._repeated(last, low, high)
                items += last
            else:
                before = self._n_symbols
                found = self._item(char)
                if found is None:
                    break
                last = found
                weight = max(1, self._n_symbols - before) if char == "(" else 1
                items += last
            self._space(newlines=nested)
        return items

    def _item(self, char: str) -> list[str | None] | None:
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
            return [None]
        if char.isascii() and (char.isalnum() or char == "-"):
            at = self._at
            name = self._name()
            if name not in self.used:
                self.used[name] = at
                self._n_symbols += name not in self.rules
            return [name]
        return None

    def _literal(self) -> list[str | None]:
        start = self._at
        self._at += 1
        items: list[str | None] = []
        while self._peek() != '"':
            if not self._peek():
                self.fail("this literal has no closing quote", start)
            self._char()
            items.append(None)
        self._at += 1
        return items

    def _class(self) -> list[str | None]:
        start = self._at
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        n = 0
        while self._peek() != "]":
            if not self._peek():
                self.fail("this character class has no closing ]", start)
            low = high = self._char()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._char()
            if high < low:
                self.fail(f"the range {chr(low)!r}-{chr(high)!r} runs backwards", start)
            self.excludes_beyond_ascii |= negated and high > 0x7F
            n += 1
        if not n:
            self.fail("this character class is empty: write . for any character", start)
        self._at += 1
        return [None]

    def _char(self) -> int:
        char = self._peek()
        if not char:
            self.fail("the grammar ends in the middle of a literal or class")
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
            self.fail(
                f"unknown escape \\{kind}{digits}: GBNF has \\xHH \\uHHHH \\UHHHHHHHH \\t \\n"
            )
        self._at += 1 + n
        code = int(digits, 16)
        if not 0 < code <= 0x10FFFF:
            self.fail(f"\\{kind}{digits} is no character")
        return code

    def _token(self) -> list[str | None]:
        start = self._at
        self._at += self._peek() == "!"
        end = self._text.find(">", self._at)
        inner = self._text[self._at + 1 : end]
        if self._peek() != "<" or end < 0 or not inner or "\n" in inner:
            self.fail("a token is written <text> or <[id]>, ! in front for any other one", start)
        if inner.startswith("[") and not (inner.endswith("]") and inner[1:-1].isdecimal()):
            self.fail("a token id is written <[42]>", start)
        if inner.startswith("[") and int(inner[1:-1]) >= 2**31:
            self.fail(f"there is no token {inner[1:-1]}", start)
        self.has_tokens = True
        self._at = end + 1
        return [None]

    def _group(self) -> list[str | None]:
        start = self._at
        self._at += 1
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self.fail(f"groups are nested more than {_MAX_DEPTH} deep", start)
        name = self._new()
        self._space(newlines=True)
        self._alternatives(name, nested=True)
        if self._peek() != ")":
            self.fail("this group has no closing )", start)
        self._at += 1
        self._depth -= 1
        return [name]

    def _repetition(self) -> tuple[int, int | None]:
        """(least, most) of the operator here; None is without limit."""
        start = self._at
        char = self._peek()
        self._at += 1
        if char != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        end = self._text.find("}", self._at)
        inner = self._text[self._at : max(end, self._at)]
        low, comma, high = (part.strip() for part in inner.partition(","))
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            self.fail("a repetition is written {3}, {3,} or {3,5}", start)
        least = int(low)
        most = int(high) if high else None if comma else least
        if most is not None and most < least:
            self.fail(f"the repetition {{{inner}}} ends before it begins", start)
        if max(least, most or 0) > _MAX_REPETITIONS:
            self.fail(f"{{{inner}}} is more than the {_MAX_REPETITIONS:,} that llama.cpp takes")
        self._at = end + 1
        return least, most

    def _repeated(self, last: list[str | None], low: int, high: int | None) -> list[str | None]:
        """The same language as llama.cpp's rewriting, for the analysis alone."""
        self._n_symbols += 1 if high is None else high - low
        if high == 0:
            return []
        required = last if low else []
        if high == low:
            return required
        name = self._new(count=False)
        again: list[str | None] = [*last, name] if high is None else [*last]
        self.rules[name].alternatives += [again, []]
        return [*required, name]

    def _new(self, *, count: bool = True) -> str:
        name = f"({len(self.rules)})"
        self.rules[name] = _Rule()
        self._n_symbols += count
        return name


def _left_recursion(rules: dict[str, _Rule]) -> str | None:
    """The name of a rule that can begin with itself and then go on, so that stacks grow."""
    nullable: set[str] = set()
    grew = True
    while grew:
        grew = False
        for name, rule in rules.items():
            if name not in nullable and any(
                all(item in nullable for item in alternative) for alternative in rule.alternatives
            ):
                nullable.add(name)
                grew = True
    edges: dict[str, set[tuple[str, bool]]] = {name: set() for name in rules}
    for name, rule in rules.items():
        for alternative in rule.alternatives:
            for i, item in enumerate(alternative):
                if item is None:
                    break
                edges[name].add((item, i + 1 < len(alternative)))
                if item not in nullable:
                    break
    for name in rules:
        for follower, grows in edges[name]:
            if grows and _reaches(edges, follower, name):
                named = name if not name.startswith("(") else follower
                return named if not named.startswith("(") else _nearest(edges, named)
    return _directly_recursive(rules)


def _directly_recursive(rules: dict[str, _Rule]) -> str | None:
    """`a ::= a`: it derives nothing new, and llama.cpp refuses it."""
    for name, rule in rules.items():
        if any(alternative[:1] == [name] for alternative in rule.alternatives):
            return name
    return None


def _reaches(edges: dict[str, set[tuple[str, bool]]], start: str, goal: str) -> bool:
    seen, todo = {start}, [start]
    while todo:
        here = todo.pop()
        if here == goal:
            return True
        for follower, _ in edges[here]:
            if follower not in seen:
                seen.add(follower)
                todo.append(follower)
    return False


def _nearest(edges: dict[str, set[tuple[str, bool]]], start: str) -> str:
    """A rule with a name of its own on the way, for the message."""
    seen, todo = {start}, [start]
    while todo:
        here = todo.pop()
        if not here.startswith("("):
            return here
        for follower, _ in edges[here]:
            if follower not in seen:
                seen.add(follower)
                todo.append(follower)
    return "root"
