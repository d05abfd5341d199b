"""One answer of a batch, the same whether it was made now or read from the file of results."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from localspec.errors import LocalspecError
from localspec.scripting.completion import Completion

__all__ = ["Answered"]


@dataclass(frozen=True, slots=True)
class Answered:
    """index: the prompt's place. id: its name. seed: of this answer alone.

    error, message: the named error that the prompt ran into, None when there is an answer.
    reason, verifier, drafter, promise, timings: as in Completion. prompt_sha256: of its ids.
    """

    index: int
    id: str
    prompt_sha256: str
    seed: int
    text: str = ""
    token_ids: tuple[int, ...] = ()
    reason: str | None = None
    verifier: str = ""
    drafter: str = ""
    promise: str = ""
    timings: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    message: str | None = None

    @property
    def ok(self) -> bool:
        """True when there is an answer."""
        return self.error is None

    @classmethod
    def of(cls, index: int, name: str, digest: str, result: Completion) -> Answered:
        """From a whole answer."""
        return cls(
            index,
            name,
            digest,
            result.stats.seed,
            result.text,
            result.token_ids,
            result.reason,
            result.stats.verifier,
            result.stats.drafter,
            result.promise.kind if result.promise else "",
            dict(result.stats.timings()),
        )

    @classmethod
    def failed(
        cls, index: int, name: str, digest: str, seed: int, error: LocalspecError
    ) -> Answered:
        """From a named error."""
        return cls(index, name, digest, seed, error=type(error).__name__, message=str(error))

    def to_dict(self) -> dict[str, Any]:
        """A row of the file: `type` is result or error."""
        row = {"type": "error" if self.error else "result", **asdict(self)}
        return {**row, "token_ids": list(self.token_ids)}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Answered:
        """What to_dict() made. Raises KeyError, TypeError, ValueError for anything else."""
        named = {name: value for name, value in row.items() if name != "type"}
        named["index"] = int(named["index"])
        named["token_ids"] = tuple(int(token) for token in named["token_ids"])
        return cls(**named)
