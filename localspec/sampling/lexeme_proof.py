"""Is reading a text by the longest lexemes the same as reading it by the grammar?

It is if no lexeme that may end could go on, as itself or as another one, with a character that may
follow it. Positions and their followers are those of Glushkov's automaton; first and follow sets
are those of LL parsing. What may go on is compared by the first bytes of characters, for lexemes
are read byte by byte. A no may be too careful; a yes is certain.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

from localspec.sampling.gbnf import (
    MAX_CODE,
    Chars,
    Choice,
    Lexeme,
    Node,
    Repeat,
    Rule,
    Seq,
    walk,
)

__all__ = ["NotProvedError", "require_one_reading"]

_MAX_POSITIONS = 3_000
_MAX_STEPS = 300_000  # a fraction of a second


class NotProvedError(Exception):
    """Long lexemes would change the language, or they are too long to tell."""


def require_one_reading(trees: dict[str, Node], rules: dict[str, Node]) -> None:
    """Raise NotProvedError unless the longest lexeme is always the right one.

    trees: rules by name, cut into lexemes. rules: what the lexemes are made of.
    """
    lexemes = {node.regex: node for tree in trees.values() for node in walk(tree)
               if isinstance(node, Lexeme)}  # fmt: skip
    alphabet = _Alphabet(rules)
    automata = {regex: _Automaton(node.part, rules, alphabet) for regex, node in lexemes.items()}
    follows = _Follows(trees, automata).of_lexemes
    n_steps = 0
    for regex, one in automata.items():
        after = alphabet.first_bytes(follows[regex])
        for other in automata.values():
            n_steps = _require_an_end(one, other, after, n_steps)


def _require_an_end(one: _Automaton, other: _Automaton, after: int, n_steps: int) -> int:
    """No text is all of `one` and a beginning of `other` that goes on with a byte of `after`."""
    todo = [(p, q) for p in _bits(one.first) for q in _bits(other.first)
            if one.chars[p] & other.chars[q]]  # fmt: skip
    seen = set(todo)
    while todo:
        p, q = todo.pop()
        if one.last >> p & 1 and other.next_bytes[q] & after:
            raise NotProvedError
        for r in _bits(one.follow[p]):
            for s in _bits(other.follow[q]):
                n_steps += 1
                if one.chars[r] & other.chars[s] and (r, s) not in seen:
                    seen.add((r, s))
                    todo.append((r, s))
        if n_steps > _MAX_STEPS:
            raise NotProvedError
    return n_steps


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Alphabet:
    """Code points in intervals that no class of the grammar divides; a set of them is one int."""

    def __init__(self, rules: dict[str, Node]) -> None:
        ranges = {pair for rule in rules.values() for node in walk(rule)
                  if isinstance(node, Chars) for pair in node.ranges}  # fmt: skip
        edges = {edge for low, high in ranges for edge in (low, high + 1)}
        self._edges = sorted(edges | {0, MAX_CODE + 1})

    def mask(self, node: Chars) -> int:
        found = 0
        for low, high in node.ranges:
            a, b = (bisect.bisect_left(self._edges, edge) for edge in (low, high + 1))
            found |= (1 << b) - (1 << a)
        return found

    def first_bytes(self, mask: int) -> int:
        """The bytes that these characters begin with in UTF-8, as bits; perhaps some more."""
        found = 0
        for i in _bits(mask):
            low, high = _first_byte(self._edges[i]), _first_byte(self._edges[i + 1] - 1)
            found |= (1 << high + 1) - (1 << low)
        return found


def _first_byte(code: int) -> int:
    return chr(code).encode("utf-8", "surrogatepass")[0]


class _Automaton:
    """Glushkov's: a position for each character of a lexeme; sets of positions are ints.

    first, last: where a text may begin and end. follow: by position, what may come next.
    next_bytes: by position, the bytes that may come next, as bits.
    """

    def __init__(self, part: Node, rules: dict[str, Node], alphabet: _Alphabet) -> None:
        self._rules = rules
        self._alphabet = alphabet
        self.chars: list[int] = []
        self.follow: list[int] = []
        self.first, self.last, self.may_be_empty = self._add(part)
        known: dict[int, int] = {}
        self.next_bytes: list[int] = []
        for follow in self.follow:
            chars = self.union(follow)
            if chars not in known:
                known[chars] = alphabet.first_bytes(chars)
            self.next_bytes.append(known[chars])

    def union(self, positions: int) -> int:
        """The characters at any of these positions."""
        found = 0
        for position in _bits(positions):
            found |= self.chars[position]
        return found

    def _add(self, node: Node) -> tuple[int, int, bool]:
        """(first, last, may be empty) of a part, whose positions are added."""
        if isinstance(node, Chars):
            if len(self.chars) >= _MAX_POSITIONS:
                raise NotProvedError
            self.chars.append(self._alphabet.mask(node))
            self.follow.append(0)
            bit = 1 << len(self.chars) - 1
            return bit, bit, False
        if isinstance(node, Rule):
            return self._add(self._rules[node.name])
        if isinstance(node, Choice):
            firsts, lasts, empties = zip(*map(self._add, node.parts), strict=True)
            return _or(firsts), _or(lasts), any(empties)
        if isinstance(node, Seq):
            return self._joined(self._add(part) for part in node.parts)
        assert isinstance(node, Repeat)
        return self._joined(self._copies(node))

    def _copies(self, node: Repeat) -> Iterator[tuple[int, int, bool]]:
        for i in range(node.high if node.high is not None else max(node.low, 1)):
            first, last, empty = self._add(node.part)
            if node.high is None and i >= node.low - 1:
                self._link(last, first)
            yield first, last, empty or i >= node.low

    def _joined(self, parts: Iterable[tuple[int, int, bool]]) -> tuple[int, int, bool]:
        first, last, empty = 0, 0, True
        for part_first, part_last, part_empty in parts:
            self._link(last, part_first)
            first |= part_first if empty else 0
            last = part_last | (last if part_empty else 0)
            empty &= part_empty
        return first, last, empty

    def _link(self, last: int, first: int) -> None:
        for position in _bits(last):
            self.follow[position] |= first


def _or(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


class _Follows:
    """of_lexemes: by regex, the characters that may come behind the lexeme."""

    def __init__(self, trees: dict[str, Node], automata: dict[str, _Automaton]) -> None:
        self._automata = automata
        self._firsts: dict[str, tuple[int, bool]] = dict.fromkeys(trees, (0, False))
        self._after: dict[str, int] = dict.fromkeys(trees, 0)
        self.of_lexemes: dict[str, int] = dict.fromkeys(automata, 0)
        order = list(trees)
        first_before, after_before = None, None
        while self._firsts != first_before:
            first_before = dict(self._firsts)
            order.reverse()  # rules may use those above and those below
            for name in order:
                self._firsts[name] = self._first(trees[name])
        while self._after != after_before:
            after_before = dict(self._after)
            order.reverse()
            for name in order:
                self._visit(trees[name], self._after[name])

    def _first(self, node: Node) -> tuple[int, bool]:
        """(characters that it may begin with, whether it may be empty)."""
        if isinstance(node, Lexeme):
            automaton = self._automata[node.regex]
            return automaton.union(automaton.first), node.may_be_empty
        if isinstance(node, Rule):
            return self._firsts[node.name]
        if isinstance(node, Repeat):
            first, empty = self._first(node.part)
            return first, empty or node.low == 0
        if isinstance(node, Choice):
            found = [self._first(part) for part in node.parts]
            return _or(first for first, _ in found), any(empty for _, empty in found)
        if isinstance(node, Seq):
            return self._first_of_run(node.parts)
        return 0, False  # a token, which no lexeme could go on into

    def _first_of_run(self, parts: tuple[Node, ...]) -> tuple[int, bool]:
        found = 0
        for part in parts:
            first, empty = self._first(part)
            found |= first
            if not empty:
                return found, False
        return found, True

    def _visit(self, node: Node, after: int) -> None:
        """after: characters that may come behind this part."""
        if isinstance(node, Lexeme):
            self.of_lexemes[node.regex] |= after
        elif isinstance(node, Rule):
            self._after[node.name] |= after
        elif isinstance(node, Choice):
            for part in node.parts:
                self._visit(part, after)
        elif isinstance(node, Repeat):
            again = self._first(node.part)[0] if node.high is None or node.high > 1 else 0
            self._visit(node.part, after | again)
        elif isinstance(node, Seq):
            for i, part in enumerate(node.parts):
                first, empty = self._first_of_run(node.parts[i + 1 :])
                self._visit(part, first | (after if empty else 0))
