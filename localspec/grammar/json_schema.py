"""A JSON schema as a grammar, so that every complete answer is a valid instance.

The grammar is as strict as the schema or stricter, never looser: a keyword that it cannot keep is
refused by name. Stricter in these: white space is what json.dumps writes (one space behind `:` and
`,`), properties come in the schema's order, an object that lists properties has no others unless
additionalProperties allows them, and numbers have at most 16 digits before and behind the point.
llama-cpp-python's converter is not used: it lets raw control characters into strings, breaks on
quotes and backslashes in constants, and drops what it does not know in silence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from localspec.errors import InvalidOptionError
from localspec.grammar.gbnf import literal
from localspec.grammar.numbers import INTEGER, NUMBER, Bounds, decimals, integers
from localspec.grammar.patterns import ANY_CHARS, HEX4, pattern_rule
from localspec.grammar.schema_keywords import (
    BY_TYPE,
    bounds_of,
    count_of,
    has_type,
    listed,
    refusal,
    require_keywords,
    types_of,
)
from localspec.grammar.schema_merge import branches, merged, resolve

__all__ = ["schema_to_gbnf"]

Schema: TypeAlias = "Mapping[str, Any]"

ANNOTATIONS = frozenset(
    [
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "$anchor",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentMediaType",
        "contentEncoding",
        "discriminator",
    ]
)
_ALWAYS_TRUE = {"uniqueItems": False, "minProperties": 0, "nullable": False}
_DAY = (
    '("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01]) | '
    '("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30") | '
    '"02-" ("0" [1-9] | "1" [0-9] | "2" [0-8])'
)
_DATE = f'[12] [0-9]{{3}} "-" ({_DAY})'
_CLOCK = '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]'
_TIME = f'{_CLOCK} ":" [0-5] [0-9] ("." [0-9]{{1,6}})? ("Z" | [+-] {_CLOCK})'
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f'{_DATE} "T" {_TIME}',
    "uuid": '[0-9a-f]{8} ("-" [0-9a-f]{4}){3} "-" [0-9a-f]{12}',
}


def schema_to_gbnf(schema: Any) -> tuple[str, tuple[str, ...]]:
    """(GBNF, notes) for a schema as a mapping or True; the notes name formats not enforced.

    Raises InvalidOptionError that names the place and the keyword that cannot be kept.
    """
    writer = _Writer(schema)
    try:
        writer.rule("root", writer.value(schema, "#"))
    except RecursionError:
        raise InvalidOptionError("json_schema: it is nested too deeply, or without end") from None
    text = "\n".join(f"{name} ::= {body}" for name, body in writer.rules.items()) + "\n"
    return text, tuple(sorted(writer.notes))


class _Writer:
    """Rules by name; `where` in its methods is a JSON pointer into the schema, for messages."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._of_refs: dict[str, str] = {}
        self._n = 0
        self.rules: dict[str, str] = {}
        self.notes: set[str] = set()

    def rule(self, name: str, body: str) -> str:
        self.rules[name] = body
        return name

    def _named(self, stem: str, body: str) -> str:
        self._n += 1
        return self.rule(f"{stem}{self._n}", body)

    def _once(self, name: str, body: Callable[[], str]) -> str:
        if name not in self.rules:
            self.rules[name] = ""  # the name is taken before the body is made
            self.rules[name] = body()
        return name

    def value(self, schema: Any, where: str) -> str:
        """The name of a rule, or a short body, for one value."""
        if schema is True or schema == {}:
            return self._any()
        if schema is False:
            raise refusal(where, "`false` allows no value")
        if not isinstance(schema, Mapping):
            raise refusal(where, f"a schema is an object, not {schema!r}")
        require_keywords(schema, where)
        given = {k: v for k, v in schema.items() if k not in ANNOTATIONS}
        if "$ref" in given:
            return self._ref(given, where)
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in given:
                return self._combined(keyword, given, where)
        if "const" in given or "enum" in given:
            return self._constants(given, where)
        return self._typed(given, where)

    def _ref(self, given: dict[str, Any], where: str) -> str:
        ref = given["$ref"]
        if len(given) > 1:
            target = resolve(self._root, ref, where)
            rest = {k: v for k, v in given.items() if k != "$ref"}
            return self.value(merged(target, rest, where), where)
        if ref not in self._of_refs:
            target = resolve(self._root, ref, where)
            self._n += 1
            name = self._of_refs[ref] = f"ref{self._n}"
            self.rules[name] = ""
            self.rules[name] = self.value(target, ref)
        return self._of_refs[ref]

    def _combined(self, keyword: str, given: dict[str, Any], where: str) -> str:
        found = branches(self._root, given, keyword, where)
        bodies = [self.value(part, f"{where}/{keyword}/{i}") for i, part in enumerate(found)]
        return self._named("any", " | ".join(bodies)) if len(bodies) > 1 else bodies[0]

    def _constants(self, given: dict[str, Any], where: str) -> str:
        values = [given["const"]] if "const" in given else given["enum"]
        if not isinstance(values, list) or not values:
            raise refusal(where, "enum needs a list that is not empty")
        if "const" in given and "enum" in given:
            values = [value for value in values if value in given["enum"]]
        extra = given.keys() - {"const", "enum", "type"}
        if extra:
            raise refusal(where, f"{listed(extra)} beside enum or const")
        types = types_of(given, where) if "type" in given else None
        if types is not None:
            values = [value for value in values if any(has_type(value, t) for t in types)]
        if not values:
            raise refusal(where, "none of the constants has the type asked for")
        try:
            texts = [json.dumps(value, ensure_ascii=False, allow_nan=False) for value in values]
        except (TypeError, ValueError) as error:
            raise refusal(where, f"a constant is no JSON value: {error}") from None
        return self._named("const", " | ".join(dict.fromkeys(map(literal, texts))))

    def _typed(self, given: dict[str, Any], where: str) -> str:
        types = types_of(given, where)
        known = {"type"}.union(*(BY_TYPE[t] for t in types))
        strange = {
            k for k in given.keys() - known if k not in _ALWAYS_TRUE or given[k] != _ALWAYS_TRUE[k]
        }
        if strange:
            raise refusal(where, f"{listed(strange)} cannot be kept by a grammar")
        bodies = []
        for kind in types:
            part = {k: v for k, v in given.items() if k in BY_TYPE[kind]}
            bodies.append(getattr(self, f"_{kind}")(part, where))
        return self._named("any", " | ".join(bodies)) if len(bodies) > 1 else str(bodies[0])

    def _null(self, given: Schema, where: str) -> str:
        return '"null"'

    def _boolean(self, given: Schema, where: str) -> str:
        return self._once("boolean", lambda: '"true" | "false"')

    def _integer(self, given: Schema, where: str) -> str:
        return self._bounded(given, where, "integer", INTEGER, integers)

    def _number(self, given: Schema, where: str) -> str:
        return self._bounded(given, where, "number", NUMBER, decimals)

    def _bounded(
        self,
        given: Schema,
        where: str,
        name: str,
        free: str,
        rule_of: Callable[[Bounds], str | None],
    ) -> str:
        bounds = bounds_of(given, where)
        if bounds.free:
            return self._once(name, lambda: free)
        body = rule_of(bounds)
        if body is None:
            what = "whole number" if name == "integer" else "number"
            raise refusal(where, f"no {what} lies within its bounds")
        return self._named(name, body)

    def _char(self) -> str:
        escapes = f'"\\\\" (["\\\\/bfnrt] | {HEX4})'
        return self._once("char", lambda: f"{ANY_CHARS} | {escapes}")

    def _string(self, given: Schema, where: str) -> str:
        low = count_of(given, "minLength", where) or 0
        high = count_of(given, "maxLength", where)
        if "pattern" in given:
            if low or high is not None or "format" in given:
                raise refusal(where, "pattern together with a length or a format")
            if not isinstance(given["pattern"], str):
                raise refusal(where, f"pattern is {given['pattern']!r}, not text")
            return self._quoted(pattern_rule(given["pattern"], self._char()))
        kind = given.get("format")
        if kind in _FORMATS:
            if low or high is not None:
                raise refusal(where, "format together with a length")
            return self._once(kind, lambda: f'"\\"" {_FORMATS[kind]} "\\""')
        if kind is not None:
            self.notes.add(f"json_schema: format {kind!r} is not enforced: any string is taken")
        if low == 0 and high is None:
            return self._once("string", lambda: f'"\\"" {self._char()}* "\\""')
        return self._quoted(self._char() + _times(low, high, where))

    def _quoted(self, body: str) -> str:
        return self._named("string", f'"\\"" {body} "\\""')

    def _array(self, given: Schema, where: str) -> str:
        low = count_of(given, "minItems", where) or 0
        high = count_of(given, "maxItems", where)
        first = given.get("prefixItems", [])
        if not isinstance(first, list):
            raise refusal(where, "prefixItems is a list of schemas")
        rest = given.get("items", True)
        heads = [self.value(item, f"{where}/prefixItems/{i}") for i, item in enumerate(first)]
        if high is not None and high < low:
            raise refusal(where, f"maxItems {high} is less than minItems {low}")
        if rest is False:
            high = len(heads) if high is None else min(high, len(heads))
            if high < low:
                raise refusal(where, f"minItems is {low}, but {high} items are allowed")
        heads = heads if high is None else heads[:high]
        item = ""
        if high is None or high > len(heads):
            body = self.value(rest, f"{where}/items")
            item = body if body.isalnum() else self._named("item", body)
        return self._named("array", f'"[" {_items(heads, item, low, high, where)} "]"')

    def _object(self, given: Schema, where: str) -> str:
        properties = given.get("properties", {})
        required = given.get("required", [])
        more = given.get("additionalProperties", "properties" not in given)
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise refusal(where, "properties is an object and required a list")
        names = list(properties)
        for name in required:
            if name not in properties:
                if more is False:
                    raise refusal(where, f"{name!r} is required, but it is no property")
                names.append(name)
        pairs = []
        for name in names:
            schema = properties.get(name, more)
            body = self.value(schema, f"{where}/properties/{name}")
            key = literal(json.dumps(name, ensure_ascii=False) + ": ")
            pairs.append((self._named("pair", f"{key} {_group(body)}"), name in required))
        other = None
        if more is not False:
            value = self.value(more, f"{where}/additionalProperties")
            other = self._named("other", f'{self._key(names)} ": " {_group(value)}')
        return self._named("object", f'"{{" {self._members(pairs, other)} "}}"')

    def _members(self, pairs: list[tuple[str, bool]], other: str | None) -> str:
        """Properties in order, the optional ones left out or not, then any others."""
        first = f'({other} (", " {other})*)?' if other else '""'
        later = f'(", " {other})*' if other else '""'
        for pair, is_required in reversed(pairs):
            behind = self._named("rest", later)
            start = f"{pair} {behind}"
            follow = f'", " {pair} {behind}'
            first = start if is_required else f"{start} | {first}"
            later = follow if is_required else f"{follow} | {behind}"
        return _group(first)

    def _key(self, names: list[str]) -> str:
        """A string that is none of `names`; without escapes, which could spell one of them."""
        plain = [name for name in names if json.dumps(name, ensure_ascii=False)[1:-1] == name]
        if not plain:
            return self._string({}, "")
        return f'"\\"" {self._other_than(plain)}'

    def _other_than(self, endings: list[str]) -> str:
        """The rest of a plain string and its closing quote, where it equals none of `endings`."""
        heads = sorted({ending[0] for ending in endings if ending})
        free = "[^" + "".join(_in_class(c) for c in heads) + '"\\\\\\x01-\\x1F\\x7F]'
        tail = f'{free} [^"\\\\\\x01-\\x1F\\x7F]* "\\""'
        parts = [tail] if "" in endings else [tail, '"\\""']
        for head in heads:
            deeper = [ending[1:] for ending in endings if ending[:1] == head]
            parts.append(f"{literal(head)} {self._other_than(deeper)}")
        return self._named("key", " | ".join(parts))

    def _any(self) -> str:
        def body() -> str:
            parts = [getattr(self, f"_{kind}")({}, "") for kind in ("string", "number", "boolean")]
            return " | ".join(
                [
                    *parts,
                    '"null"',
                    '"[" (value (", " value)*)? "]"',
                    '"{" (string ": " value (", " string ": " value)*)? "}"',
                ]
            )

        return self._once("value", body)


def _items(heads: list[str], item: str, low: int, high: int | None, where: str) -> str:
    """The inside of an array: `heads` one by one, then `item` as often as allowed."""
    rest = '""'
    if item:
        n_low = max(0, low - len(heads))
        n_high = None if high is None else high - len(heads)
        if heads:
            rest = f'(", " {item}){_times(n_low, n_high, where)}'
        elif n_low:
            tail = None if n_high is None else n_high - 1
            rest = f'{item} (", " {item}){_times(n_low - 1, tail, where)}'
        elif n_high != 0:
            tail = None if n_high is None else n_high - 1
            rest = f'({item} (", " {item}){_times(0, tail, where)})?'
    for i in range(len(heads) - 1, -1, -1):
        one = f"{_group(heads[i])} {rest}" if i == 0 else f'", " {_group(heads[i])} {rest}'
        rest = one if i < low else f"({one})?"
    return rest


def _times(low: int, high: int | None, where: str) -> str:
    if max(low, high or 0) > 2000:
        raise refusal(where, "a length above 2,000 is more than llama.cpp's grammars can count")
    if high is None:
        return "*" if low == 0 else f"{{{low},}}"
    if high < low:
        raise refusal(where, f"a length of at least {low} and at most {high}")
    return f"{{{low},{high}}}"


def _group(body: str) -> str:
    return body if body.isalnum() else f"({body})"


def _in_class(char: str) -> str:
    return "\\" + char if char in '"\\[]-' else f"\\U{ord(char):08X}" if char == "^" else char
