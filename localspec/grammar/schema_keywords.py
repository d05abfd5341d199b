"""What a schema's keywords say, read strictly: types, bounds and counts, or a named refusal."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from localspec.errors import InvalidOptionError
from localspec.grammar.numbers import Bounds

__all__ = [
    "BY_TYPE",
    "bounds_of",
    "count_of",
    "has_type",
    "listed",
    "refusal",
    "require_keywords",
    "types_of",
]

BY_TYPE: dict[str, frozenset[str]] = {
    "object": frozenset(("properties", "required", "additionalProperties")),
    "array": frozenset(("items", "prefixItems", "minItems", "maxItems")),
    "string": frozenset(("minLength", "maxLength", "pattern", "format")),
    "integer": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "number": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    "boolean": frozenset(),
    "null": frozenset(),
}


_NUMBER: Any = ((int, float), "a number")
_KINDS: dict[str, Any] = {
    "properties": (Mapping, "an object"),
    "required": (list, "a list of names"),
    "type": ((str, list), "a name or a list of names"),
    "format": (str, "a name"),
    **dict.fromkeys(("minimum", "maximum", "minLength", "maxLength"), _NUMBER),
    **dict.fromkeys(("minItems", "maxItems"), _NUMBER),
}


def require_keywords(schema: Any, where: str) -> None:
    """Keywords whose values are of a wrong kind are refused before anything is done with them."""
    if not isinstance(schema, Mapping):
        return
    for keyword, (kinds, words) in _KINDS.items():
        value = schema.get(keyword)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise refusal(where, f"{keyword} is {value!r}, not {words}")
    for keyword in ("type", "required"):
        values = schema.get(keyword)
        if isinstance(values, list) and not all(isinstance(value, str) for value in values):
            raise refusal(where, f"{keyword} {values!r} holds what is no text")


def types_of(given: Mapping[str, Any], where: str) -> list[str]:
    """The types of a value; what the keywords are about when the schema does not say."""
    named = given.get("type")
    types = [named] if isinstance(named, str) else named
    if types is None:
        types = [kind for kind, about in BY_TYPE.items() if about & given.keys()]
        if not types:
            raise refusal(where, f"{listed(given.keys())} cannot be kept by a grammar")
        types = types[:1] if types[0] != "integer" else ["number"]
    if (
        not isinstance(types, list)
        or not types
        or not all(isinstance(t, str) and t in BY_TYPE for t in types)
    ):
        raise refusal(where, f"type {named!r} is unknown: choose of {', '.join(BY_TYPE)}")
    return [t for t in dict.fromkeys(types) if not (t == "integer" and "number" in types)]


def has_type(value: Any, kind: str) -> bool:
    """Whether a JSON value is an instance of one of the seven types."""
    if isinstance(value, bool) or value is None:
        return kind == ("null" if value is None else "boolean")
    if isinstance(value, (int, float)):
        return kind == "number" or (kind == "integer" and value % 1 == 0)
    kinds: dict[str, Any] = {"string": str, "object": Mapping, "array": (list, tuple)}
    return kind in kinds and isinstance(value, kinds[kind])


def bounds_of(given: Mapping[str, Any], where: str) -> Bounds:
    """The interval of a number."""
    low, above = _strictest(given, "minimum", "exclusiveMinimum", where, max)
    high, below = _strictest(given, "maximum", "exclusiveMaximum", where, min)
    return Bounds(low, high, above, below)


def _strictest(
    given: Mapping[str, Any], plain: str, strict: str, where: str, choose: Any
) -> tuple[Decimal | None, bool]:
    found = []
    for keyword in (plain, strict):
        value = given.get(keyword)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            raise refusal(where, f"{keyword} is {value!r}, not a number")
        if abs(value) >= 10**16:
            raise refusal(where, f"{keyword} {value!r} has more than 16 digits")
        found.append((Decimal(str(value)), keyword == strict))
    if not found:
        return None, False
    edge = choose(value for value, _ in found)
    return edge, any(is_strict for value, is_strict in found if value == edge)


def count_of(given: Mapping[str, Any], keyword: str, where: str) -> int | None:
    """A length or a number of items; None when it is not given."""
    value = given.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise refusal(where, f"{keyword} is {value!r}, not a whole number of 0 or more")
    return value


def listed(names: Any) -> str:
    """Names in order, for a message."""
    return ", ".join(sorted(names))


def refusal(where: str, why: str) -> InvalidOptionError:
    """What cannot be kept, and where: `where` is a JSON pointer into the schema."""
    return InvalidOptionError(f"json_schema at {where}: {why}")
