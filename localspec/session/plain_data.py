"""Options, events, results and errors as plain data that JSON can say.

Knows each kind by its shape alone: an event by event_json, a named error by its name and text,
anything with a to_dict() by that, a dataclass of options by its fields.
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Mapping
from typing import Any

from localspec.decoding.event_json import as_json
from localspec.decoding.events import Finished, Prefill, Round, Stats
from localspec.errors import InvalidOptionError, LocalspecError
from localspec.session.options import LoadOptions, Options

__all__ = ["options_from_dict", "to_dict", "to_json"]


def to_dict(thing: Any) -> dict[str, Any]:
    """Options, LoadOptions, an event, Stats, a Completion, a Recipe or a LocalspecError.

    Infinite numbers become the texts "inf" and "-inf", token ids as keys become text. Raises
    InvalidOptionError for anything else.
    """
    if isinstance(thing, (Prefill, Round, Finished)):
        return as_json(thing)
    if isinstance(thing, LocalspecError):
        return {"type": "error", "error": type(thing).__name__, "message": str(thing)}
    if isinstance(thing, Stats):
        return {
            "type": "stats",
            "seed": thing.seed,
            "verifier": thing.verifier,
            "drafter": thing.drafter,
            "notes": list(thing.notes),
            "timings": thing.timings(),
        }
    if isinstance(thing, (Options, LoadOptions)):
        return {field.name: _plain(getattr(thing, field.name)) for field in _fields(thing)}
    make = getattr(thing, "to_dict", None)
    if make is not None and not isinstance(thing, type):
        made: dict[str, Any] = make()
        return made
    raise InvalidOptionError(f"{type(thing).__name__} has no form as a dict here")


def to_json(thing: Any) -> str:
    """The same as one line of JSON."""
    return json.dumps(to_dict(thing), ensure_ascii=False, allow_nan=False)


def options_from_dict(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for Session.complete from what to_dict() made of Options."""
    named = dict(given)
    bias = named.get("logit_bias")
    if isinstance(bias, Mapping):
        try:
            named["logit_bias"] = {int(token): float(value) for token, value in bias.items()}
        except (TypeError, ValueError):
            raise InvalidOptionError(
                f"logit_bias maps token ids to numbers, not {bias!r}"
            ) from None
    if isinstance(named.get("stop"), list):
        named["stop"] = tuple(named["stop"])
    return named


def _fields(thing: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(thing)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    name = value if isinstance(value, type) else type(value)  # an own drafter, a schema's class
    return f"{name.__module__}.{name.__qualname__}"
