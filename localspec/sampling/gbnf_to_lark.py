"""GBNF rules in Lark for llguidance, without changing the language.

llguidance reads a text as lexemes, each the longest that fits: with `[a-z]*` and "b" as two
lexemes, no text would match `[a-z]* "b"`. A grammar without recursion is therefore made one
lexeme, in which nothing is cut. One with recursion is cut into lexemes as long as can be, then
into shorter ones, until lexeme_proof.py finds that the longest that fits is the only one that
fits; at last into one for each character, which is always right, and takes milliseconds a mask
instead of microseconds.
"""

from __future__ import annotations

from localspec.errors import InvalidOptionError
from localspec.sampling.gbnf import (
    Chars,
    Choice,
    Lexeme,
    Node,
    Repeat,
    Rule,
    Seq,
    Token,
    read_gbnf,
    walk,
)
from localspec.sampling.lexeme_proof import NotProvedError, require_one_reading

__all__ = ["gbnf_to_lark"]

_MAX_RULES = 1_000
_MAX_NESTING = 200  # the parser of regular expressions stops at 250
_MAX_REGEX = 2_000_000  # characters


def gbnf_to_lark(text: str) -> str:
    """Lark for GBNF. Raises InvalidOptionError with line and column of what is wrong."""
    rules = read_gbnf(text)
    if len(rules) > _MAX_RULES:
        raise InvalidOptionError(f"the grammar has more than {_MAX_RULES:,} rules")
    try:
        _require_an_end(rules)
        for cut in ("runs", "parts"):
            try:
                return _Translation(rules, cut).lark()
            except (NotProvedError, RecursionError):
                continue
        return _Translation(rules, "characters").lark()
    except RecursionError:
        raise InvalidOptionError("the grammar's rules are nested too deeply") from None


def _require_an_end(rules: dict[str, Node]) -> None:
    """Some finite text must complete the grammar."""
    ending: set[str] = set()

    def ends(node: Node) -> bool:
        if isinstance(node, Rule):
            return node.name in ending
        if isinstance(node, Choice):
            return any(map(ends, node.parts))
        if isinstance(node, Seq):
            return all(map(ends, node.parts))
        return not isinstance(node, Repeat) or node.low == 0 or ends(node.part)

    order, n_before = list(rules), -1
    while len(ending) > n_before:
        n_before = len(ending)
        order.reverse()
        ending.update(name for name in order if name not in ending and ends(rules[name]))
    if "root" not in ending:
        raise InvalidOptionError("the grammar never ends: no finite text completes its rule root")


class _Translation:
    """The rules that root needs, cut into lexemes.

    cut: `runs` joins neighbours in a sequence, `parts` does not, `characters` cuts everything.
    """

    def __init__(self, rules: dict[str, Node], cut: str) -> None:
        self._rules = rules
        self._how = cut
        self._regular = _regular(rules)
        self._regexes: dict[str, str] = {}

    def lark(self) -> str:
        """Raises NotProvedError where the lexemes would be too long, or change the language."""
        trees: dict[str, Node] = {}
        todo = ["root"]
        while todo:
            name = todo.pop()
            if name not in trees:
                trees[name] = self._cut(self._rules[name])
                todo += [node.name for node in walk(trees[name]) if isinstance(node, Rule)]
        if self._how != "characters" and not isinstance(trees["root"], Lexeme):
            require_one_reading(trees, self._rules)
        names = {name: f"r{i}" for i, name in enumerate(trees)} | {"root": "start"}
        lexemes: dict[str, str] = {}
        lines = [f"{names[name]}: {_spelled(tree, names, lexemes)}" for name, tree in trees.items()]
        return "\n".join([*lines, *(f"{name}: {body}" for body, name in lexemes.items())]) + "\n"

    def _cut(self, node: Node) -> Node:
        if self._is_lexeme(node):
            return self._lexeme(node)
        if isinstance(node, Choice):
            return Choice(tuple(map(self._cut, node.parts)))
        if isinstance(node, Repeat):
            return Repeat(self._cut(node.part), node.low, node.high)
        if not isinstance(node, Seq):
            return node
        parts: list[Node] = []
        run: list[Node] = []
        for part in (*node.parts, None):
            if part is not None and self._how == "runs" and self._is_lexeme(part):
                run.append(part)
                continue
            if run:
                parts.append(self._lexeme(Seq(tuple(run))))
                run = []
            if part is not None:
                parts.append(self._cut(part))
        return Seq(tuple(parts))

    def _is_lexeme(self, node: Node) -> bool:
        if self._how == "characters":
            return isinstance(node, Chars)
        return not any(
            isinstance(inner, Token)
            or (isinstance(inner, Rule) and inner.name not in self._regular)
            for inner in walk(node)
        )

    def _lexeme(self, node: Node) -> Lexeme:
        return Lexeme(node, self._regex(node, 0), self._may_be_empty(node))

    def _regex(self, node: Node, depth: int) -> str:
        if depth > _MAX_NESTING:
            raise NotProvedError
        if isinstance(node, Chars):
            return _class(node)
        if isinstance(node, Rule):
            if node.name not in self._regexes:
                self._regexes[node.name] = self._regex(self._rules[node.name], depth + 1)
            return f"(?:{self._regexes[node.name]})"
        if isinstance(node, Seq):
            found = "".join(self._regex(part, depth + 1) for part in node.parts)
        elif isinstance(node, Choice):
            found = "|".join(self._regex(part, depth + 1) for part in node.parts)
            found = f"(?:{found})"
        else:
            assert isinstance(node, Repeat)
            high = "" if node.high is None else node.high
            found = f"(?:{self._regex(node.part, depth + 1)}){{{node.low},{high}}}"
        if len(found) > _MAX_REGEX:
            raise NotProvedError
        return found

    def _may_be_empty(self, node: Node) -> bool:
        if isinstance(node, Rule):
            return self._may_be_empty(self._rules[node.name])
        if isinstance(node, Choice):
            return any(map(self._may_be_empty, node.parts))
        if isinstance(node, Repeat):
            return node.low == 0 or self._may_be_empty(node.part)
        return isinstance(node, Seq) and all(map(self._may_be_empty, node.parts))


def _regular(rules: dict[str, Node]) -> set[str]:
    """Rules that name no tokens and, followed to the end, never come back to themselves."""
    inside = {name: list(walk(node)) for name, node in rules.items()}
    found: set[str] = set()
    users: dict[str, list[str]] = {name: [] for name in rules}
    n_open = {}
    for name, nodes in inside.items():
        used = {node.name for node in nodes if isinstance(node, Rule)}
        n_open[name] = len(used) + any(isinstance(node, Token) for node in nodes)
        for other in used:
            users[other].append(name)
    todo = [name for name, n in n_open.items() if not n]
    while todo:
        name = todo.pop()
        found.add(name)
        for user in users[name]:
            n_open[user] -= 1
            if not n_open[user]:
                todo.append(user)
    return found


def _class(node: Chars) -> str:
    parts = [
        _code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in node.ranges
    ]
    is_one = len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]
    return parts[0] if is_one else f"[{''.join(parts)}]"


def _code(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:X}}}"


def _spelled(node: Node, names: dict[str, str], lexemes: dict[str, str]) -> str:
    """A part of a rule in Lark; the lexemes that it uses are added to `lexemes`, by their text."""
    if isinstance(node, Lexeme):
        if not node.regex:
            return '""'
        # no lexeme is empty: one that could be is left out instead
        body = f"/{node.regex}/" + (" & /(?s:.+)/" if node.may_be_empty else "")
        name = lexemes.setdefault(body, f"T{len(lexemes)}")
        return f"{name}?" if node.may_be_empty else name
    if isinstance(node, Rule):
        return names[node.name]
    if isinstance(node, Token):
        return _token(node)
    if isinstance(node, Seq):
        return " ".join(_spelled(part, names, lexemes) for part in node.parts) or '""'
    if isinstance(node, Choice):
        return "(" + " | ".join(_spelled(part, names, lexemes) for part in node.parts) + ")"
    assert isinstance(node, Repeat)
    inner = f"({_spelled(node.part, names, lexemes)})"
    if node.high is None and node.low < 2:
        return inner + "*+"[node.low]
    return f"{inner}{{{node.low},{'' if node.high is None else node.high}}}"


def _token(token: Token) -> str:
    if not token.negated:
        return token.text
    if not token.text.startswith("<["):
        raise InvalidOptionError(
            f"the grammar's !{token.text}: only a token that is given by its id, as in !<[42]>, "
            "can be ruled out"
        )
    return f"<[^{token.text[2:-2]}]>"
