"""results.jsonl: the rows of a sweep, read from and appended to a folder, and what each must hold.

A row is on the disk before the next is measured. require_rows() is the only gate: nothing behind it
meets a row of another shape.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar

from localspec.bench.configuration import Configuration, RowFields
from localspec.errors import InvalidOptionError
from localspec.jsonl_file import JsonlFile, Row, read_whole_rows

__all__ = ["VERSION", "AgreementRow", "QualityRow", "ResultsFile", "read_rows", "require_rows"]

VERSION = 1
FILE_NAME = "results.jsonl"


class ResultsFile(JsonlFile):
    """The rows of one folder, open for appending. Use it as a context manager.

    Raises BusyError when another sweep writes here, and what JsonlFile raises.
    """

    writer = "another sweep"
    rows_are = "no row of a sweep"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE_NAME, folder / ".lock")
        self.folder = folder

    def of_type(self, row_type: str) -> list[Row]:
        """The rows of this type, in order."""
        return [row for row in self.rows if row["type"] == row_type]

    def drop(self, unwanted: Callable[[Row], bool]) -> int:
        """Remove rows, so that they can be measured again; returns how many."""
        kept = [row for row in self.rows if not unwanted(row)]
        n = len(self.rows) - len(kept)
        if n:
            self.replace(kept)
        return n

    def kept_words(self) -> str:
        """The runs that stand in the file."""
        return f"{len(self.of_type('run'))} runs"


def read_rows(folder: Path) -> list[Row]:
    """The rows of a finished or unfinished sweep. Raises InvalidOptionError when there are none."""
    path = folder / FILE_NAME
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidOptionError(
            f"{folder} holds no sweep: {path.name} cannot be read ({error.strerror}). "
            "`localspec bench --out DIR` makes one"
        ) from None
    rows = list(read_whole_rows(raw, path, ResultsFile.rows_are))
    if not rows:
        raise InvalidOptionError(f"{path} is empty: the sweep has not measured anything yet")
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow(RowFields):
    """One target against `reference`, the best of its sweep or its source. KL in nats.

    *_error: one standard error. kl_* and top1_agreement are None for the reference itself.
    text: what was read. error: why it could not be measured; the figures are None then.
    """

    row_type: ClassVar[str] = "quality"

    target: str
    reference: str | None = None
    perplexity: float | None = None
    perplexity_error: float | None = None
    kl_mean: float | None = None
    kl_error: float | None = None
    top1_agreement: float | None = None
    n_tokens: int = 0
    text: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementRow(RowFields):
    """Draft against target over the same text: mean KL in nats, and mean Σ min(p, q)."""

    row_type: ClassVar[str] = "agreement"

    target: str
    draft: str
    kl: float | None = None
    sum_min: float | None = None
    n_tokens: int = 0
    error: str | None = None


Shape = Mapping[str, Any]  # by field: a type, or the shape of an object
_TokenCount = typing.NewType("_TokenCount", str)  # a key of a JSON object
_Object = Mapping[str, Any]
_Milliseconds = Mapping[_TokenCount, float] | None


def _shape_of(kind: type[RowFields]) -> Shape:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}  # type: ignore[arg-type]


_SHAPES: Mapping[str, Shape] = {
    "sweep": {
        "test_time": str,
        "workload": {"prompts": str, "n_gen": int, "answering": _Object},
        "prompts_name": str,
        "prompts": list[tuple[str, str]],
        "repeat": int,
        "n_drafts": list[int],
        "delay_s": float,
        "loading": _Object,
        "machine": {
            "cpu_info": str,
            "gpu_info": str,
            "n_cpus": int,
            "memory_bytes": int | None,
            "system": str,
            "python": str,
            "engine": str,
            "localspec": str,
        },
    },
    "file": {"role": str, "label": str, "fingerprint": str},
    "run": {
        "target": str,
        "draft": str,
        "setting": str,
        "prompt": str,
        "category": str,
        "repetition": int,
        "error": str | None,
    },
    "prediction": {
        "target": str,
        "draft": str,
        "prompt": str,
        "category": str,
        "n_gen": int,
        "plain_ts": float,
        "sum_min": float | None,
        "speed_up": Mapping[str, float],
        "sampled": Mapping[str, Mapping[str, Mapping[_TokenCount, float]]] | None,
    },
    "pair": {
        "target": str,
        "draft": str,
        "t_ms": _Milliseconds,
        "d_ms": _Milliseconds,
        "n_threads": int | None,
        "device": str | None,
        "power": str | None,
    },
    **{kind.row_type: _shape_of(kind) for kind in (Configuration, QualityRow, AgreementRow)},
}
_ANSWERED: Shape = {  # a run without an error
    "test_time": str,
    "n_prompt": int,
    "n_gen": int,
    "avg_ns": int,
    "avg_ts": float,
    "prompt_per_second": float | None,
    "draft_s": float,
    "verify_s": float,
    "other_s": float,
    "draft_n": int,
    "n_passes": int,
    "drafter": str,
    "ttft_s": float | None,
    "same_as_plain": bool,
    "accepted_by_position": list[int],
    "judged_by_position": list[int],
}
_MAY_LACK = {"run": ("error",), "prediction": ("sampled",), "pair": ("d_ms",)}
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_LARGEST = 1e100  # products of a few such numbers are still finite


def require_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    """Raises InvalidOptionError with the number of the first row that is not of this version.

    Rows of a type that is not known here are let through.
    """
    for number, row in enumerate(rows, 1):
        if row["type"] == "sweep" and row.get("version") != VERSION:
            raise InvalidOptionError(
                f"row {number} is of a sweep of version {row.get('version')!r}, and this localspec "
                f"writes and reads version {VERSION}: use the localspec that made it, or measure "
                "again into another --out"
            )
        wrong = _wrong(row)
        if wrong is not None:
            raise InvalidOptionError(
                f"row {number} (of type {row['type']!r}) is not as localspec wrote it: {wrong}. "
                "The file was edited or damaged: delete that line to have it measured again, or "
                "give another --out"
            )


def _wrong(row: Mapping[str, Any]) -> str | None:
    """What does not fit, in words."""
    kind = row["type"]
    may_lack = _MAY_LACK.get(kind, ())
    found = _misfit(row, _SHAPES.get(kind, {}), may_lack)
    if found is None and kind == "run" and "error" not in row:
        found = _misfit(row, _ANSWERED)
    if found is None and (kind == "configuration" or (kind == "run" and "error" not in row)):
        n_accepted, n_judged = len(row["accepted_by_position"]), len(row["judged_by_position"])
        if n_accepted != n_judged:
            return (
                f"accepted_by_position has {n_accepted} entries and judged_by_position has "
                f"{n_judged}"
            )
    if kind == "configuration" and row.get("error") is None and not row.get("median_ts"):
        return found or f"it has no error, and median_ts is {row.get('median_ts')!r}"
    return found


def _misfit(row: Mapping[str, Any], shape: Shape, may_lack: Sequence[str] = ()) -> str | None:
    """The first field that is missing or does not fit, in words."""
    for name, hint in shape.items():
        if name not in row:
            if name in may_lack:
                continue
            return f"{name} is missing"
        value = row[name]
        if isinstance(hint, Mapping) and isinstance(value, Mapping):
            found = _misfit(value, hint)
            if found is not None:
                return found
        elif isinstance(hint, Mapping) or not _fits(value, hint):
            return f"{name} is {str(value)[:60]!r}"
    return None


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if hint is _TokenCount:
        return isinstance(value, str) and _COUNT.fullmatch(value) is not None
    if origin in (typing.Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if hint is float or hint is int:
        kinds = (int, float) if hint is float else (int,)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        return is_number and math.isfinite(value) and abs(value) < _LARGEST
    if origin is tuple and inner[-1] is not Ellipsis:
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(inner)
            and all(_fits(v, one) for v, one in zip(value, inner, strict=True))
        )
    if origin in (list, tuple):
        return isinstance(value, (list, tuple)) and all(_fits(v, inner[0]) for v in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items()
        )
    return value is None if hint is type(None) else isinstance(value, hint)
