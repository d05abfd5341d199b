"""results.jsonl: the rows of a sweep, what each must hold, and which files their labels stand for.

A row is on the disk before the next is measured; nothing behind this meets a row of another shape.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

from localspec.bench.configuration import Configuration
from localspec.bench.plan import Contender, Plan
from localspec.errors import InvalidOptionError, ModelFileError
from localspec.gguf.fingerprint import fingerprint
from localspec.jsonl_file import JsonlFile, Row, read_whole_rows

__all__ = [
    "VERSION",
    "AgreementRow",
    "QualityRow",
    "Results",
    "agreement_of",
    "change",
    "file_rows",
    "is_replaced",
    "quality_of",
    "read_rows",
    "require_rows",
    "require_same_files",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """One target against `reference`, the best of its sweep or its source. KL in nats.

    *_error: one standard error. kl_* and top1_agreement are None for the reference itself.
    text: what was read. error: why it could not be measured; the figures are None then.
    """

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

    def as_row(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {"type": "quality", **dataclasses.asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementRow:
    """Draft against target over the same text: mean KL in nats, and mean Σ min(p, q)."""

    target: str
    draft: str
    kl: float | None = None
    sum_min: float | None = None
    n_tokens: int = 0
    error: str | None = None

    def as_row(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {"type": "agreement", **dataclasses.asdict(self)}


def quality_of(row: Mapping[str, Any]) -> QualityRow:
    """The QualityRow of a row."""
    return _read(QualityRow, row)


def agreement_of(row: Mapping[str, Any]) -> AgreementRow:
    """The AgreementRow of a row."""
    return _read(AgreementRow, row)


def _read(kind: type[T], row: Mapping[str, Any]) -> T:
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: row[name] for name in names if name in row})


VERSION = 1
_MAY_LACK = {"run": ("error",), "prediction": ("sampled",), "pair": ("d_ms",)}
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
_LARGEST = 1e100  # products of a few such numbers are still finite

Shape = Mapping[str, Any]
_Number = float | None
_Object = Mapping[str, Any]
_Prompts = list[tuple[str, str]]
_Millis = Mapping[str, float] | None

_PAIR: Shape = {"target": str, "draft": str}
_SWEEP: Shape = {
    "test_time": str,
    "workload": _Object,
    "prompts_name": str,
    "prompts": _Prompts,
    "repeat": int,
    "n_drafts": list[int],
    "delay_s": float,
    "loading": _Object,
    "machine": _Object,
}
_FILE: Shape = {"role": str, "label": str, "fingerprint": str}
_WORKLOAD: Shape = {"prompts": str, "n_gen": int, "answering": _Object}
_MACHINE: Shape = {
    "cpu_info": str,
    "gpu_info": str,
    "n_cpus": int,
    "memory_bytes": int | None,
    "system": str,
    "python": str,
    "engine": str,
    "localspec": str,
}
_RUN: Shape = {
    **_PAIR,
    "setting": str,
    "prompt": str,
    "category": str,
    "repetition": int,
    "error": str | None,
}
_ANSWERED: Shape = {
    "test_time": str,
    "n_prompt": int,
    "n_gen": int,
    "avg_ns": int,
    "avg_ts": float,
    "prompt_per_second": _Number,
    "draft_s": float,
    "verify_s": float,
    "other_s": float,
    "draft_n": int,
    "n_passes": int,
    "drafter": str,
    "ttft_s": _Number,
    "same_as_plain": bool,
    "accepted_by_position": list[int],
    "judged_by_position": list[int],
}
_PREDICTION: Shape = {
    **_PAIR,
    "prompt": str,
    "category": str,
    "n_gen": int,
    "plain_ts": float,
    "sum_min": _Number,
    "speed_up": Mapping[str, float],
    "sampled": Mapping[str, Mapping[str, Mapping[str, float]]] | None,
}
_MEASURED: Shape = {**_PAIR, "t_ms": _Millis, "d_ms": _Millis, "n_threads": int | None,
                    "device": str | None, "power": str | None}  # fmt: skip


def require_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises InvalidOptionError with the number of the first row that is not of this version."""
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
    kind = row["type"]
    if kind == "sweep":
        return (
            _misfit(row, _SWEEP)
            or _misfit(row["workload"], _WORKLOAD)
            or _misfit(row["machine"], _MACHINE)
        )
    if kind == "run":
        found = _misfit(row, _RUN)
        return found or (None if "error" in row else _misfit(row, _ANSWERED) or _uneven(row))
    if kind == "file":
        return _misfit(row, _FILE)
    if kind == "prediction":
        return _misfit(row, _PREDICTION) or _misnumbered(_lengths(row))
    if kind == "pair":
        return _misfit(row, _MEASURED) or _misnumbered(_sizes(row))
    if kind == "configuration":
        found = _misfit(row, _hints(Configuration)) or _uneven(row)
        if found is None and row.get("error") is None and not row.get("median_ts"):
            return f"it has no error, and median_ts is {row.get('median_ts')!r}"
        return found
    known = {"quality": QualityRow, "agreement": AgreementRow}
    return _misfit(row, _hints(known[kind])) if kind in known else None


def _hints(kind: type[Any]) -> Shape:
    """Types by field."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _misfit(row: Mapping[str, Any], shape: Shape) -> str | None:
    """The first field that is missing or does not fit, in words."""
    for name, hint in shape.items():
        if name not in row and name not in _MAY_LACK.get(row.get("type", ""), ()):
            return f"{name} is missing"
        if not _fits(row.get(name), hint):
            return f"{name} is {str(row[name])[:60]!r}"
    return None


def _uneven(row: Mapping[str, Any]) -> str | None:
    names = ("accepted_by_position", "judged_by_position")
    n_accepted, n_judged = (len(row[name]) for name in names)
    if n_accepted == n_judged:
        return None
    return f"{names[0]} has {n_accepted} entries and {names[1]} has {n_judged}"


def _lengths(row: Mapping[str, Any]) -> list[str]:
    """Draft lengths of a prediction, which are keys."""
    by_temperature = (row.get("sampled") or {}).values()
    return [k for ways in by_temperature for by_k in ways.values() for k in by_k]


def _sizes(row: Mapping[str, Any]) -> list[str]:
    """Sizes of a pair's cost tables."""
    return [n for name in ("t_ms", "d_ms") for n in row.get(name) or {}]


def _misnumbered(keys: Sequence[str]) -> str | None:
    wrong = next((key for key in keys if not _COUNT.fullmatch(key)), None)
    return None if wrong is None else f"{wrong[:60]!r} stands where a number of tokens belongs"


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
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
        return isinstance(value, Mapping) and all(_fits(v, inner[1]) for v in value.values())
    return value is None if hint is type(None) else isinstance(value, hint)


def file_rows(plan: Plan) -> list[Row]:
    """Files that cannot be read have none: the rows of their pairs say so."""
    found = [("target", c) for c in plan.targets] + [("draft", c) for c in plan.drafts]
    return [
        {"type": "file", "role": role, "label": c.label, "fingerprint": fingerprint(c.path)}
        for role, c in found
        if c.error is None
    ]


def is_replaced(row: Mapping[str, Any], files: Sequence[Row]) -> bool:
    """True when the label stands for another file now."""
    named = (row["role"], row["label"])
    return any(named == (f["role"], f["label"]) and row != f for f in files)


def require_same_files(rows: Sequence[Mapping[str, Any]], files: Sequence[Row]) -> None:
    """Raises InvalidOptionError where answers of another file stand under a label."""
    answered = [row for row in rows if row["type"] == "run" and row.get("error") is None]
    for row in rows:
        if (
            row["type"] == "file"
            and is_replaced(row, files)
            and any(run.get(row["role"]) == row["label"] for run in answered)
        ):
            raise InvalidOptionError(
                f"{row['label']} has changed since it was measured: another file has its name now. "
                "Give another --out"
            )


def change(rows: Sequence[Mapping[str, Any]], role: str, found: Contender | None) -> str | None:
    """What became of a file since its row was written, None while it is the same one."""
    if found is None or found.error is not None:
        return None
    try:
        now = fingerprint(found.path)
    except ModelFileError as error:
        return str(error)
    named = ("file", role, found.label)
    then = {r["fingerprint"] for r in rows if (r["type"], r.get("role"), r.get("label")) == named}
    if then <= {now}:
        return None
    return f"{found.label} has changed since this sweep began: another file has its name now"


FILE_NAME = "results.jsonl"
_ROWS_ARE = "no row of a sweep"


class Results(JsonlFile):
    """The rows of one folder, open for appending. Use it as a context manager.

    Raises BusyError when another sweep writes here, and what JsonlFile raises.
    """

    writer = "another sweep"
    rows_are = _ROWS_ARE

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE_NAME, folder / ".lock")
        self.folder = folder

    def drop(self, unwanted: Callable[[Row], bool]) -> int:
        """Remove rows, so that they can be measured again; returns how many."""
        kept = [row for row in self.rows if not unwanted(row)]
        n = len(self.rows) - len(kept)
        if n:
            self.replace(kept)
        return n

    def kept_words(self) -> str:
        """The runs that stand in the file."""
        return f"{sum(row.get('type') == 'run' for row in self.rows)} runs"


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
    rows = list(read_whole_rows(raw, path, _ROWS_ARE))
    if not rows:
        raise InvalidOptionError(f"{path} is empty: the sweep measured nothing yet")
    return rows
