"""The file of a batch: a first line that says how it was made, then one line for each prompt.

An answer is the same object whether it was made now or read from the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from localspec.decoding.logprobs import TokenLogprob, logprob_from_json, logprob_json
from localspec.errors import LocalspecError, ResultsFileError
from localspec.jsonl_file import JsonlFile
from localspec.sampling.seeds import resolve_seed
from localspec.session.completion import Completion

__all__ = ["Answered", "ResultsFile"]

_VERSION = 1  # of the file
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


class ResultsFile(JsonlFile):
    """Open for appending; what is there already is `done`, by index.

    described: options and models. seed: None takes the file's, or a fresh one.
    retry_errors: prompts that ran into an error count as not done.
    Raises ResultsFileError when the file was made otherwise, and what JsonlFile raises.
    """

    writer = "another batch"
    rows_are = "no row of a batch"

    def __init__(
        self, path: Path, described: Mapping[str, Any], seed: int | None, *, retry_errors: bool
    ) -> None:
        path = path.expanduser()
        super().__init__(path, path.with_name(f".{path.name}.lock"))
        self._described = dict(described)
        self._asked_seed = seed
        self._retry_errors = retry_errors
        self.seed = -1
        self.done: dict[int, Answered] = {}

    def __enter__(self) -> ResultsFile:
        super().__enter__()
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def add(self, answered: Answered) -> None:
        """On the disk when this returns."""
        self.append([answered.to_dict()])

    def sort(self) -> None:
        """Rows in the order of the prompts; a retried error gives way to what came after it."""
        latest = {row["index"]: row for row in self.rows[1:]}
        rows = [self.rows[0], *(latest[index] for index in sorted(latest))]
        if rows != self.rows:
            self.replace(rows)

    def _begin(self) -> None:
        if not self.rows:
            self.seed = resolve_seed(self._asked_seed)
            head = {"type": "batch", "version": _VERSION, "seed": self.seed, **self._described}
            self.append([head])
            return
        head = self.rows[0]
        if head["type"] != "batch" or head.get("version") != _VERSION:
            raise ResultsFileError(f"{self.path} is no file of a batch: name another one")
        self.seed = resolve_seed(head.get("seed"))
        wanted = dict(self._described)
        if self._asked_seed not in (None, -1):
            wanted["seed"] = self._asked_seed
        different = _differences(head, wanted)
        if different:
            raise ResultsFileError(
                f"{self.path} was begun with other settings ({'; '.join(different)}): give the "
                "same ones to go on, or name another file"
            )
        for row in self.rows[1:]:
            try:
                answered = Answered.from_dict(row)
            except (KeyError, TypeError, ValueError) as error:
                raise ResultsFileError(f"{self.path} holds a row that is none: {error}") from None
            if answered.ok or not self._retry_errors:
                self.done[answered.index] = answered
            else:
                self.done.pop(answered.index, None)


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> list[str]:
    found = []
    for name in now if not path else sorted({*then, *now}):
        a, b = then.get(name), now.get(name)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _differences(a, b, f"{path}{name}.")
        else:
            found.append(f"{path}{name} {a!r} in the file, {b!r} now")
    return found
