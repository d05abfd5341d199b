"""All that is needed to make an answer again, as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from localspec.errors import InvalidOptionError

__all__ = ["Recipe"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """Session.rerun makes the answer again; to_json() carries it to another process.

    prompt_ids: the prompt as it was evaluated. options: of the answer, the seed that was drawn
    included. made_by: files (name, size in bytes, fingerprint), load options, engine and version.
    promise: how far the answer comes again (see Promise.kind).
    """

    prompt_ids: tuple[int, ...]
    options: dict[str, Any]
    made_by: dict[str, Any]
    promise: str

    def to_dict(self) -> dict[str, Any]:
        """Only what JSON can say."""
        return {
            "type": "recipe",
            "version": _VERSION,
            "prompt_ids": list(self.prompt_ids),
            "options": self.options,
            "made_by": self.made_by,
            "promise": self.promise,
        }

    def to_json(self) -> str:
        """One line."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, given: Any) -> Recipe:
        """What to_dict() made, or its JSON text. Raises InvalidOptionError for anything else."""
        try:
            row = json.loads(given) if isinstance(given, (str, bytes)) else given
            if row["type"] != "recipe":
                raise ValueError(f"its type is {row['type']!r}")
            if row["version"] != _VERSION:
                raise ValueError(f"version {row['version']!r}, and this localspec knows {_VERSION}")
            return cls(
                tuple(int(token) for token in row["prompt_ids"]),
                dict(row["options"]),
                dict(row["made_by"]),
                str(row["promise"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidOptionError(f"this is no recipe of an answer: {error}") from None

    def differences(self, made_by: dict[str, Any]) -> list[str]:
        """In words, what a session has otherwise than the one that made the answer."""
        return [
            f"{name}: {self.made_by.get(name)!r} then, {made_by.get(name)!r} now"
            for name in sorted({*self.made_by, *made_by})
            if self.made_by.get(name) != made_by.get(name)
        ]
