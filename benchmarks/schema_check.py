"""A strict JSON Schema checker for the keywords that localspec's grammars keep, and no others.

For machines without the jsonschema package; an unknown keyword raises, so that nothing passes
unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["errors_of"]

_ANNOTATIONS = {"title", "description", "default", "$defs", "definitions", "$schema", "examples"}
_FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}


def errors_of(value: Any, schema: Any, root: Any = None, where: str = "$") -> list[str]:
    """What is wrong with a value; an empty list when it is an instance of the schema."""
    root = schema if root is None else root
    if schema is True or schema == {}:
        return []
    if schema is False:
        return [f"{where}: nothing is allowed"]
    found: list[str] = []
    for keyword, wanted in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        check = _CHECKS.get(keyword)
        if check is None:
            raise NotImplementedError(f"keyword {keyword} is not checked here")
        found += check(value, wanted, schema, root, where)
    return found


def _ref(value: Any, ref: str, schema: Any, root: Any, where: str) -> list[str]:
    target = root
    for part in ref.split("/")[1:]:
        target = target[part]
    return errors_of(value, target, root, where)


def _type(value: Any, wanted: Any, schema: Any, root: Any, where: str) -> list[str]:
    kinds = [wanted] if isinstance(wanted, str) else wanted
    return [] if any(_is(value, kind) for kind in kinds) else [f"{where}: {value!r} is no {wanted}"]


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "number": (int, float),
        "null": type(None),
        "boolean": bool,
    }
    return isinstance(value, kinds[kind])


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _any_of(value: Any, parts: Any, schema: Any, root: Any, where: str) -> list[str]:
    fits = any(not errors_of(value, part, root, where) for part in parts)
    return [] if fits else [f"{where}: no branch of anyOf fits"]


def _one_of(value: Any, parts: Any, schema: Any, root: Any, where: str) -> list[str]:
    n = sum(not errors_of(value, part, root, where) for part in parts)
    return [] if n == 1 else [f"{where}: {n} branches of oneOf fit"]


def _all_of(value: Any, parts: Any, schema: Any, root: Any, where: str) -> list[str]:
    return [error for part in parts for error in errors_of(value, part, root, where)]


def _when(kind: type | tuple[type, ...], holds: Any, said: str) -> Any:
    def check(value: Any, wanted: Any, schema: Any, root: Any, where: str) -> list[str]:
        if not isinstance(value, kind) or isinstance(value, bool) or holds(value, wanted):
            return []
        return [f"{where}: {value!r} {said} {wanted!r}"]

    return check


def _properties(value: Any, wanted: Any, schema: Any, root: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [
        error
        for name, part in wanted.items()
        if name in value
        for error in errors_of(value[name], part, root, f"{where}.{name}")
    ]


def _additional(value: Any, wanted: Any, schema: Any, root: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return []
    others = value.keys() - schema.get("properties", {}).keys()
    return [e for name in others for e in errors_of(value[name], wanted, root, f"{where}.{name}")]


def _required(value: Any, wanted: Any, schema: Any, root: Any, where: str) -> list[str]:
    if not isinstance(value, Mapping):
        return []
    return [f"{where}: {name} is missing" for name in wanted if name not in value]


def _items(value: Any, wanted: Any, schema: Any, root: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        return []
    start = len(schema.get("prefixItems", ()))
    return [
        e
        for i, item in enumerate(value[start:])
        for e in errors_of(item, wanted, root, f"{where}[{i}]")
    ]


def _prefix_items(value: Any, wanted: Any, schema: Any, root: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        return []
    return [
        e
        for item, part in zip(value, wanted, strict=False)
        for e in errors_of(item, part, root, where)
    ]


_NUMBER = (int, float)
_CHECKS: dict[str, Any] = {
    "$ref": _ref,
    "type": _type,
    "const": lambda v, w, s, r, at: [] if _equal(v, w) else [f"{at}: {v!r} is not {w!r}"],
    "enum": lambda v, w, s, r, at: [] if any(_equal(v, x) for x in w) else [f"{at}: {v!r} not in"],
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "items": _items,
    "prefixItems": _prefix_items,
    "minItems": _when(list, lambda v, w: len(v) >= w, "has fewer items than"),
    "maxItems": _when(list, lambda v, w: len(v) <= w, "has more items than"),
    "minLength": _when(str, lambda v, w: len(v) >= w, "is shorter than"),
    "maxLength": _when(str, lambda v, w: len(v) <= w, "is longer than"),
    "pattern": _when(str, lambda v, w: re.search(w, v) is not None, "does not match"),
    "format": _when(
        str, lambda v, w: w not in _FORMATS or re.fullmatch(_FORMATS[w], v) is not None, "is no"
    ),
    "minimum": _when(_NUMBER, lambda v, w: v >= w, "is less than"),
    "maximum": _when(_NUMBER, lambda v, w: v <= w, "is more than"),
    "exclusiveMinimum": _when(_NUMBER, lambda v, w: v > w, "is not more than"),
    "exclusiveMaximum": _when(_NUMBER, lambda v, w: v < w, "is not less than"),
}
