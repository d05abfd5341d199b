"""A JSON schema made ready for llguidance: read, checked keyword by keyword, and narrowed.

llguidance enforces what it knows of draft 2020-12 and refuses the rest by name. Refused or
replaced here is what it would pass over in silence (unknown keywords, which may be misspelt ones)
or enforce too loosely (29 February in any year). A narrowed schema allows less than the one given:
an object that lists properties has no others, and keywords imply the type that they speak of, so
that a small model does not wander.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from localspec.errors import InvalidOptionError

__all__ = ["checked", "narrowed", "read_schema"]

_MAX_DEPTH = 100  # llguidance's reader stops at 128 levels of JSON
_MAX_OBJECTS = 10_000  # llguidance recurses along a chain of $ref
_OF_TYPE = {
    "object": {"properties", "required", "additionalProperties", "patternProperties",
               "minProperties", "maxProperties"},
    "array": {"items", "prefixItems", "additionalItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}  # fmt: skip
_ENFORCED = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}.union(*_OF_TYPE.values())
_ANNOTATIONS = {
    "$schema", "$id", "$comment", "$defs", "$anchor", "definitions", "title", "description",
    "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "contentMediaType",
    "contentEncoding", "contentSchema", "discriminator", "nullable", "id",
}  # fmt: skip
_DEFINITIONS = ("$defs", "definitions", "properties", "patternProperties")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "additionalItems")
_ALWAYS_TRUE = {"uniqueItems": False, "nullable": False}
_COMBINED = ("allOf", "anyOf", "oneOf", "$ref")

_DAY = (
    "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8])"
)
_DATE = f"[12][0-9]{{3}}-({_DAY})"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = f"{_CLOCK}:[0-5][0-9](\\.[0-9]{{1,6}})?(Z|[+-]{_CLOCK})"
_OWN_FORMATS = {"date": _DATE, "time": _TIME, "date-time": f"{_DATE}T{_TIME}"}
_FORMATS = {"duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}


def read_schema(given: Any) -> Any:
    """The schema as JSON objects: from a mapping, JSON text, or a pydantic model class."""
    made = getattr(given, "model_json_schema", None)
    if callable(made):
        given = made()
    if isinstance(given, (str, bytes)):
        try:
            given = json.loads(given)
        except RecursionError:
            raise _too_deep() from None
        except ValueError as error:
            raise InvalidOptionError(f"json_schema is no JSON: {error}") from None
    if not isinstance(given, (Mapping, bool)):
        raise InvalidOptionError(
            "json_schema takes a mapping, JSON text, or a pydantic model class, not "
            f"{type(given).__name__}"
        )
    _require_json(given)
    return given


def checked(schema: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(The schema for llguidance, notes that name the formats not enforced).

    Raises InvalidOptionError with the place and the keyword that cannot be enforced.
    """
    notes: set[str] = set()
    whole = {"allOf": [schema]} if isinstance(schema, bool) else schema
    made: dict[str, Any] = _checked(whole, "#", notes)
    return made, tuple(sorted(notes))


def _checked(schema: Any, where: str, notes: set[str]) -> Any:
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise _refusal(where, f"a schema is an object, not {schema!r}")
    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _ALWAYS_TRUE and value is _ALWAYS_TRUE[keyword]:
            continue
        if keyword not in _ENFORCED:
            if keyword not in _ANNOTATIONS and not keyword.startswith("x-"):
                raise _refusal(where, f"{keyword} cannot be enforced")
            if keyword not in ("$defs", "definitions", "$id", "$anchor", "$schema"):
                continue
        made[keyword] = _of_keyword(keyword, value, f"{where}/{keyword}", notes)
    _join_constants(made, where)
    least = schema.get("minProperties")
    if isinstance(least, int) and least > 1 and schema.get("additionalProperties") is not False:
        raise _refusal(where, "minProperties above 1 cannot be enforced: a name could be repeated")
    if schema.get("nullable"):
        raise _refusal(where, 'nullable cannot be enforced: write "type": ["…", "null"]')
    kind = schema.get("format")
    if kind is not None and not isinstance(kind, str):
        raise _refusal(where, f"format is {kind!r}, not a name")
    if kind is not None and kind not in _FORMATS:
        del made["format"]
        if kind in _OWN_FORMATS:
            pattern = {"pattern": f"^{_OWN_FORMATS[kind]}$"}
            made["allOf"] = [*made.get("allOf", ()), pattern]
        else:
            notes.add(f"json_schema: format {kind!r} is not enforced: any string is taken")
    return made


def _join_constants(made: dict[str, Any], where: str) -> None:
    """oneOf constants is an enum: llguidance would compare every two of them."""
    parts = made.get("oneOf")
    if parts is None or "enum" in made:
        return
    values: list[Any] = []
    for part in parts:
        if not isinstance(part, Mapping) or part.keys() not in ({"const"}, {"enum"}):
            return
        values += part["enum"] if "enum" in part else [part["const"]]
    if len({json.dumps(value, sort_keys=True) for value in values}) < len(values):
        raise _refusal(where, "several branches of oneOf allow the same constant")
    del made["oneOf"]
    made["enum"] = values


def _of_keyword(keyword: str, value: Any, where: str, notes: set[str]) -> Any:
    if keyword in _DEFINITIONS:
        if not isinstance(value, Mapping):
            raise _refusal(where, f"it is an object, not {value!r}")
        _require_spelling(list(value), where)
        return {name: _checked(inner, f"{where}/{name}", notes) for name, inner in value.items()}
    if keyword in _LISTS:
        if not isinstance(value, (list, tuple)) or not value:
            raise _refusal(where, "it is a list of schemas that is not empty")
        return [_checked(inner, f"{where}/{i}", notes) for i, inner in enumerate(value)]
    if keyword in _SINGLE:
        return _checked(value, where, notes)
    if keyword == "$ref" and not isinstance(value, str):
        raise _refusal(where, f"it is text, not {value!r}")
    if keyword in ("const", "enum", "required"):
        _require_spelling(value, where)
    if keyword == "enum" and (not isinstance(value, (list, tuple)) or not value):
        raise _refusal(where, "it is a list that is not empty")
    if keyword == "required" and not _are_texts(value):
        raise _refusal(where, f"it is a list of names, not {value!r}")
    if keyword == "type":
        known = {*_OF_TYPE, "integer", "boolean", "null"}
        for kind in [value] if isinstance(value, str) else value if _are_texts(value) else [value]:
            if not isinstance(kind, str) or kind not in known:
                raise _refusal(where, f"{kind!r} is unknown: choose of {', '.join(sorted(known))}")
    return value


def _require_spelling(value: Any, where: str) -> None:
    """No control character that JSON spells with \\u alone, an escape that answers do not have."""
    if isinstance(value, str) and any(
        (c < " " or c == "\x7f") and c not in "\b\f\n\r\t" for c in value
    ):
        raise _refusal(where, f"{value!r} holds a control character, which no answer can spell")
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        for inner in value:
            _require_spelling(inner, where)


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def narrowed(schema: dict[str, Any]) -> dict[str, Any]:
    """A checked schema with types that its keywords imply, and objects closed that list properties.

    What additionalProperties or patternProperties say, stands. Objects that are put together by
    allOf, or by a $ref with other keywords, are closed as a whole.
    """
    refs = [part["$ref"] for part in _parts(schema) if "$ref" in part]
    if any(_resolved(schema, ref) is None for ref in refs):
        return schema  # by anchors or ids: who shares what with whom is not told by the text
    made: dict[str, Any] = _Narrowing(schema).of(schema, is_whole=True)
    return made


class _Narrowing:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._shared: set[int] = set()  # targets of a $ref that are parts of a whole
        for part in _parts(root):
            self._mark(part)

    def _mark(self, part: Mapping[str, Any]) -> None:
        """Which parts do others add to? Through chains of $ref and lists of alternatives."""
        if "$ref" in part and not _is_alone(part, "$ref"):
            self._share(part["$ref"])
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in part and (keyword == "allOf" or not _is_alone(part, keyword)):
                for inner in part[keyword]:
                    self._share_all(inner)

    def _share_all(self, part: Any) -> None:
        if not isinstance(part, Mapping):
            return
        if "$ref" in part:
            self._share(part["$ref"])
        for keyword in ("allOf", "anyOf", "oneOf"):
            for inner in part.get(keyword, ()):
                self._share_all(inner)

    def _share(self, ref: str) -> None:
        target = _resolved(self._root, ref)
        if id(target) not in self._shared:
            self._shared.add(id(target))
            self._share_all(target)

    def of(self, part: Any, *, is_whole: bool) -> Any:
        """is_whole: nothing outside of this part says more about the same value."""
        if not isinstance(part, Mapping):
            return part
        is_whole = is_whole and id(part) not in self._shared
        made = dict(part)
        for keyword in _DEFINITIONS:
            if keyword in part:
                inner = part[keyword].items()
                made[keyword] = {name: self.of(value, is_whole=True) for name, value in inner}
        for keyword in _SINGLE:
            if keyword in part:
                made[keyword] = self.of(part[keyword], is_whole=True)
        for keyword in _LISTS:
            if keyword in part:
                whole = keyword == "prefixItems" or (
                    is_whole and keyword != "allOf" and _is_alone(part, keyword)
                )
                made[keyword] = [self.of(inner, is_whole=whole) for inner in part[keyword]]
        if not {"type", "enum", "const", *_COMBINED} & part.keys():
            types = [kind for kind, keywords in _OF_TYPE.items() if keywords & part.keys()]
            if types:
                made["type"] = types
        if is_whole:
            self._close(part, made)
        return made

    def _close(self, part: Mapping[str, Any], made: dict[str, Any]) -> None:
        if any(_is_alone(part, keyword) for keyword in ("anyOf", "oneOf", "$ref")):
            return
        parts = list(self._in_place(part, set()))
        says = {keyword for other in parts for keyword in other}
        if "properties" not in says or says & {"additionalProperties", "patternProperties"}:
            return
        names = [name for other in parts for name in other.get("properties", ())]
        names += [name for other in parts for name in other.get("required", ())]
        properties: dict[str, Any] = dict.fromkeys(names, True)
        if set(_COMBINED) & part.keys():
            closed = {"properties": properties, "additionalProperties": False}
            made["allOf"] = [*made.get("allOf", ()), closed]
        else:
            made["properties"] = properties | made.get("properties", {})
            made["additionalProperties"] = False

    def _in_place(self, part: Any, seen: set[int]) -> Iterator[Mapping[str, Any]]:
        """All that is said, or may be said, about the same value."""
        if not isinstance(part, Mapping) or id(part) in seen:
            return
        seen.add(id(part))
        yield part
        for keyword in ("allOf", "anyOf", "oneOf"):
            for inner in part.get(keyword, ()):
                yield from self._in_place(inner, seen)
        if "$ref" in part:
            yield from self._in_place(_resolved(self._root, part["$ref"]), seen)


def _is_alone(part: Mapping[str, Any], keyword: str) -> bool:
    """Nothing beside this keyword says anything about the value."""
    return keyword in part and not (part.keys() & _ENFORCED) - {keyword, "type"}


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """A schema and every one within it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for keyword in _DEFINITIONS:
        for inner in schema.get(keyword, {}).values():
            yield from _parts(inner)
    for keyword in _LISTS:
        for inner in schema.get(keyword, ()):
            yield from _parts(inner)
    for keyword in _SINGLE:
        yield from _parts(schema.get(keyword))


def _resolved(root: Any, ref: str) -> Any:
    """What a JSON pointer within the document leads to; None when it leads nowhere."""
    if ref == "#":
        return root
    if not ref.startswith("#/"):
        return None
    here = root
    for step in ref[2:].split("/"):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping) and name in here:
            here = here[name]
        elif isinstance(here, list) and name.isdecimal() and int(name) < len(here):
            here = here[int(name)]
        else:
            return None
    return here


def _require_json(schema: Any) -> None:
    """Nothing in it may be what JSON text cannot say, or be nested beyond what can be walked."""
    level, depth, n_objects = [schema], 0, 0
    while level:
        if depth > _MAX_DEPTH:
            raise _too_deep()
        texts = [value for value in level if isinstance(value, str)]
        inner: list[Any] = []
        for value in level:
            if isinstance(value, Mapping):
                n_objects += 1
                texts += value
                inner += value.values()
            elif isinstance(value, (list, tuple)):
                inner += value
            elif isinstance(value, float) and not math.isfinite(value):
                raise InvalidOptionError(f"json_schema at #: {value} is no JSON value")
            elif value is not None and not isinstance(value, (str, bool, int, float)):
                raise InvalidOptionError(
                    f"json_schema at #: {type(value).__name__} {value!r} is no JSON value"
                )
        for text in texts:
            if not isinstance(text, str):
                raise InvalidOptionError(f"json_schema: the key {text!r} is no text")
            if any("\ud800" <= char <= "\udfff" for char in text):
                raise InvalidOptionError(
                    f"json_schema: {text!r} holds half a surrogate pair, which no token can spell"
                )
        if n_objects > _MAX_OBJECTS:
            raise InvalidOptionError(f"json_schema has more than {_MAX_OBJECTS:,} objects")
        level, depth = inner, depth + 1


def _too_deep() -> InvalidOptionError:
    return InvalidOptionError(
        f"json_schema: objects and lists are nested more than {_MAX_DEPTH} deep, or without end: "
        "use $ref and $defs for what repeats"
    )


def _refusal(where: str, why: str) -> InvalidOptionError:
    """where: a JSON pointer into the schema."""
    return InvalidOptionError(f"json_schema at {where}: {why}")
