"""Which files the labels of a sweep stand for: rows of type `file`, and files that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localspec.bench.model_file import Contender
from localspec.bench.plan import Plan
from localspec.errors import InvalidOptionError, ModelFileError
from localspec.gguf.fingerprint import fingerprint

__all__ = ["change", "file_rows", "is_replaced", "require_same_files"]

Row = dict[str, Any]


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
