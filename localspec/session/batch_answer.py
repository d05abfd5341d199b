"""One answer of a batch, the same whether it was made now or read from the file of results."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from localspec.decoding.logprob_json import logprob_from_json, logprob_json
from localspec.decoding.logprobs import TokenLogprob
from localspec.errors import LocalspecError
from localspec.session.completion import Completion

__all__ = ["Answered"]

_EXTRA = ("logprobs", "grammar_complete")  # rows have them where they were asked for


@dataclass(frozen=True, slots=True)
class Answered:
    """index: the prompt's place. id: its name. seed: of this answer alone.

    error, message: the named error that the prompt ran into, None when there is an answer.
    reason, verifier, drafter, promise, timings, logprobs, grammar_complete: as in Completion.
    prompt_sha256: of its ids.
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
    logprobs: tuple[TokenLogprob, ...] | None = None
    grammar_complete: bool | None = None

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
            logprobs=result.logprobs,
            grammar_complete=result.grammar_complete,
        )

    @classmethod
    def failed(
        cls, index: int, name: str, digest: str, seed: int, error: LocalspecError
    ) -> Answered:
        """From a named error."""
        return cls(index, name, digest, seed, error=type(error).__name__, message=str(error))

    def to_dict(self) -> dict[str, Any]:
        """A row of the file: `type` is result or error."""
        row = {
            "type": "error" if self.error else "result",
            **{f.name: getattr(self, f.name) for f in fields(self)},
        }
        row["token_ids"] = list(self.token_ids)
        if self.logprobs is not None:
            row["logprobs"] = [logprob_json(entry) for entry in self.logprobs]
        return {
            name: value for name, value in row.items() if name not in _EXTRA or value is not None
        }

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Answered:
        """What to_dict() made. Raises KeyError, TypeError, ValueError for anything else."""
        named = {name: value for name, value in row.items() if name != "type"}
        named["index"] = int(named["index"])
        named["token_ids"] = tuple(int(token) for token in named["token_ids"])
        if named.get("logprobs") is not None:
            named["logprobs"] = tuple(logprob_from_json(entry) for entry in named["logprobs"])
        return cls(**named)
