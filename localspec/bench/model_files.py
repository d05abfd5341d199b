"""The model files of a sweep: their labels, and whether they are still the same files.

A label names a file in rows and tables, so no two files of a role share one. A row of type `file`
keeps a file's fingerprint: another file that takes its name is noticed. Needs no engine.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError, ModelFileError
from localspec.gguf.fingerprint import fingerprint
from localspec.gguf.header import read_header
from localspec.gguf.parts import part_paths
from localspec.gguf.types import UNQUANTISED
from localspec.jsonl_file import Row
from localspec.visible import visible

__all__ = [
    "ModelFile",
    "changed_since",
    "file_row",
    "is_replaced",
    "level_label",
    "model_file",
    "unique_labels",
]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """label: short, unique in its role. reference: what a person types to get the file.

    from_lossy: a level that was made here from a source quantised already, so that it can be no
    better than `source`, whatever its own precision. error: why the header could not be read.
    """

    label: str
    path: Path
    reference: str
    quant: str = "?"
    size_bytes: int = 0
    n_params: int = 0
    from_lossy: bool = False
    source: Path | None = None
    error: str | None = None

    @property
    def is_unquantised(self) -> bool:
        """True for F32, F16 and BF16."""
        return self.quant in UNQUANTISED


def model_file(path: Path, reference: str, *, source: Path | None = None) -> ModelFile:
    """What the header says. source: the file that this level was made from, None for others."""
    label = _shown(path.stem)
    try:
        header = read_header(path)
        lossy_source = source is not None and read_header(source).quant not in UNQUANTISED
    except LocalspecError as error:
        size = sum(part.stat().st_size for part in part_paths(path) if part.is_file())
        return ModelFile(label, path, reference, size_bytes=size, error=str(error))
    if source is not None:
        label = level_label(source, header.quant)
    return ModelFile(
        label,
        path,
        reference,
        header.quant,
        header.total_size_bytes,
        header.n_params,
        from_lossy=lossy_source,
        source=source,
    )


def level_label(source: Path, quant: str) -> str:
    """The source's name with this quant in place of its own."""
    stem = re.sub(r"(?i)[-._](I?Q\d\w*|TQ\d_\d|MXFP4\w*|B?F16|F32)$", "", source.stem)
    return f"{_shown(stem)} {quant}"


def unique_labels(files: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
    """The same without repeated files, each with a label of its own.

    Where several have one label, it gets as many folders of the file, or of a level's source, as
    tell them apart, else the name of the source, else a number.
    """
    kept: dict[Path, ModelFile] = {}
    for found in files:
        kept.setdefault(found.path.resolve(), found)
    groups: dict[str, list[ModelFile]] = defaultdict(list)
    for found in kept.values():
        groups[found.label].append(found)
    fresh = {label: iter(_told_apart(label, group)) for label, group in groups.items()}
    return tuple(replace(found, label=next(fresh[found.label])) for found in kept.values())


def _told_apart(label: str, group: Sequence[ModelFile]) -> list[str]:
    """A label for each of a group that has one label."""
    if len(group) == 1 and label != "none":
        return [label]
    origins = [(found.source or found.path).resolve() for found in group]
    deepest = max(len(origin.parents) for origin in origins)
    for depth in range(1, deepest):
        labels = ["/".join((*o.parent.parts[1:][-depth:], label)) for o in origins]
        if len(set(labels)) == len(group):
            return labels
    labels = [f"{label} from {_shown(origin.name)}" for origin in origins]
    if len(set(labels)) == len(group):
        return labels
    return [f"{label} #{i}" for i in range(1, len(group) + 1)]


def _shown(name: str) -> str:
    """One line that is no markup for a report's code marks, and that every encoding can write."""
    text = visible(name).replace("\n", "\u240a").replace("\t", "\u2409").replace("`", "'")
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def file_row(role: str, file: ModelFile) -> Row:
    """What this file is. role: `target` or `draft`. Raises ModelFileError."""
    return {
        "type": "file",
        "role": role,
        "label": file.label,
        "fingerprint": fingerprint(file.path),
    }


def is_replaced(row: Row, now: Iterable[Row]) -> bool:
    """True when the label of a file's row stands for another file in the rows `now`."""
    named = (row["role"], row["label"])
    return any(
        named == (new["role"], new["label"]) and row["fingerprint"] != new["fingerprint"]
        for new in now
    )


def changed_since(rows: Iterable[Row], role: str, file: ModelFile | None) -> str | None:
    """What became of a file since its row was written, None while it is the same one."""
    if file is None or file.error is not None:
        return None
    try:
        now = file_row(role, file)
    except ModelFileError as error:
        return str(error)
    if any(row["type"] == "file" and is_replaced(row, [now]) for row in rows):
        return f"{file.label} has changed since this sweep began: another file has its name now"
    return None
