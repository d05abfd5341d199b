"""References, and schemas that combine others: looked up, merged, and kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localspec.grammar.schema_keywords import refusal, require_keywords

__all__ = ["branches", "merged", "resolve"]


def resolve(root: Any, ref: Any, where: str) -> Any:
    """What a `$ref` within the document points to."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        raise refusal(where, f"$ref {ref!r}: only references within the schema (#/…) are followed")
    found = root
    for part in ref.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            raise refusal(where, f"$ref {ref!r} leads nowhere: there is no {part!r}")
    return found


def branches(root: Any, given: Mapping[str, Any], keyword: str, where: str) -> list[Any]:
    """The alternatives of allOf (one), anyOf or oneOf, each with the keywords beside it."""
    parts = given[keyword]
    if not isinstance(parts, list) or not parts:
        raise refusal(where, f"{keyword} needs a list that is not empty")
    beside = {k: v for k, v in given.items() if k != keyword}
    if keyword == "allOf":
        whole: Any = beside
        for part in parts:
            whole = merged(whole, _opened(root, part, where), where)
        return [whole]
    if keyword == "oneOf":
        _require_apart(root, parts, where)
    if not beside:
        return list(parts)
    return [merged(beside, _opened(root, part, where), where) for part in parts]


def merged(a: Any, b: Any, where: str) -> Any:
    """A schema that keeps both, where that can be said in one."""
    if a is True or a == {}:
        return b
    if b is True or b == {}:
        return a
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        raise refusal(where, "schemas that are no objects cannot be merged")
    require_keywords(a, where)
    require_keywords(b, where)
    _require_open(a, b, where)
    found = dict(a)
    for keyword, value in b.items():
        if keyword not in found or found[keyword] == value:
            found[keyword] = value
        elif keyword == "properties":
            both = dict(found[keyword])
            for name, schema in value.items():
                both[name] = merged(both[name], schema, where) if name in both else schema
            found[keyword] = both
        elif keyword == "required":
            found[keyword] = list(dict.fromkeys([*found[keyword], *value]))
        elif keyword in ("minimum", "minLength", "minItems"):
            found[keyword] = max(found[keyword], value)
        elif keyword in ("maximum", "maxLength", "maxItems"):
            found[keyword] = min(found[keyword], value)
        elif keyword in ("title", "description", "default", "examples", "$defs", "definitions"):
            continue
        else:
            raise refusal(where, f"two different values of {keyword} cannot be merged")
    return found


def _require_open(a: Mapping[str, Any], b: Mapping[str, Any], where: str) -> None:
    """additionalProperties speaks of the schema that it stands in, not of a merged one."""
    for one, other in ((a, b), (b, a)):
        if one.get("additionalProperties", True) is True:
            continue
        strange = other.get("properties", {}).keys() - one.get("properties", {}).keys()
        if strange:
            raise refusal(where, f"additionalProperties forbids {', '.join(sorted(strange))}")


def _opened(root: Any, schema: Any, where: str) -> Any:
    """The schema with its reference, if it is one, looked up."""
    for _ in range(50):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return schema
        rest = {k: v for k, v in schema.items() if k != "$ref"}
        schema = merged(resolve(root, schema["$ref"], where), rest, where)
    raise refusal(where, "its references run in a circle")


def _require_apart(root: Any, parts: list[Any], where: str) -> None:
    """oneOf means exactly one: no value may be valid under two of them."""
    opened = [_opened(root, part, where) for part in parts]
    for part in opened:
        require_keywords(part, where)
    if _are_all_constants_apart(opened):  # thousands of them are common, and their pairs many
        return
    for i, a in enumerate(opened):
        for b in opened[:i]:
            if not _are_apart(a, b):
                raise refusal(
                    where,
                    "a value may fit several branches of oneOf, which a grammar cannot rule out: "
                    "use anyOf, or give the branches different types or a constant that differs",
                )


def _are_all_constants_apart(parts: list[Any]) -> bool:
    """True when all parts name constants, and none is named twice."""
    named = [_constants(part) for part in parts]
    values = [value for constants in named if constants is not None for value in constants]
    try:
        return None not in named and len(set(values)) == len(values)
    except TypeError:  # a list or an object among them
        return False


def _are_apart(a: Any, b: Any) -> bool:
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return False
    ours, theirs = _constants(a), _constants(b)
    if ours is not None and theirs is not None:
        return not any(value in theirs for value in ours)
    types = [_kinds(schema) for schema in (a, b)]
    if types[0] and types[1] and not types[0] & types[1]:
        return True
    for name in set(a.get("required", ())) & set(b.get("required", ())):
        one, other = (_constants(s.get("properties", {}).get(name, {})) for s in (a, b))
        if one is not None and other is not None and not any(value in other for value in one):
            return True
    return False


def _constants(schema: Any) -> list[Any] | None:
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    named = schema.get("type", [])
    kinds = {named} if isinstance(named, str) else set(named)
    return {"number" if kind == "integer" else kind for kind in kinds}
