"""Which grammar an answer must follow, from the three options that can say so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.errors import InvalidOptionError
from localspec.grammar.gbnf import Checked, check_gbnf, literal
from localspec.grammar.json_schema import schema_to_gbnf

__all__ = ["WantedGrammar", "read_schema", "wanted_grammar"]

_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class WantedGrammar:
    """A grammar that was checked, and what a person should know about how it was made."""

    checked: Checked
    notes: tuple[str, ...] = ()


def wanted_grammar(
    json_schema: Any = None, grammar: Any = None, choices: Any = None
) -> WantedGrammar | None:
    """The grammar of whichever is given; None when nothing is.

    Raises InvalidOptionError when two are given, or one cannot be kept.
    """
    given = {"json_schema": json_schema, "grammar": grammar, "choices": choices}
    named = [name for name, value in given.items() if value is not None]
    if not named:
        return None
    if len(named) > 1:
        raise InvalidOptionError(f"{' and '.join(named)} exclude each other: give one of them")
    if grammar is not None:
        if not isinstance(grammar, str):
            raise InvalidOptionError(f"grammar is GBNF as text, not {type(grammar).__name__}")
        return WantedGrammar(check_gbnf(grammar))
    if choices is not None:
        return WantedGrammar(check_gbnf(_of_choices(choices)))
    text, notes = schema_to_gbnf(read_schema(json_schema))
    return WantedGrammar(check_gbnf(text), notes)


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


def _require_json(schema: Any) -> None:
    """Nothing in it may be what JSON text cannot say, or be nested beyond what can be walked."""
    level, depth = [schema], 0
    while level:
        if depth > _MAX_DEPTH:
            raise _too_deep()
        texts = [value for value in level if isinstance(value, str)]
        inner: list[Any] = []
        for value in level:
            if isinstance(value, Mapping):
                texts += value
                inner += value.values()
            elif isinstance(value, (list, tuple)):
                inner += value
        for text in texts:
            if not isinstance(text, str):
                raise InvalidOptionError(f"json_schema: the key {text!r} is no text")
            if any("\ud800" <= char <= "\udfff" for char in text):
                raise InvalidOptionError(
                    f"json_schema: {text!r} holds half a surrogate pair, which no token can spell"
                )
        level, depth = inner, depth + 1


def _too_deep() -> InvalidOptionError:
    return InvalidOptionError(
        f"json_schema: objects and lists are nested more than {_MAX_DEPTH} deep, or without end: "
        "use $ref and $defs for what repeats"
    )


def _of_choices(choices: Any) -> str:
    if isinstance(choices, (str, bytes)) or not isinstance(choices, Sequence) or not choices:
        raise InvalidOptionError("choices is a list of texts that is not empty")
    for choice in choices:
        if not isinstance(choice, str) or not choice:
            raise InvalidOptionError(f"choices holds {choice!r}: each is a text, not empty")
        if "\0" in choice or any("\ud800" <= char <= "\udfff" for char in choice):
            raise InvalidOptionError(f"choices holds {choice!r}, which no token can spell")
    return "root ::= " + " | ".join(dict.fromkeys(map(literal, choices))) + "\n"
