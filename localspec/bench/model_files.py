"""The model files of a sweep: their labels, levels made here, and whether they are still the same.

A label names a file in rows and tables, so no two files of a role share one. Levels of a source are
made once and kept in the cache folder; a changed source or importance matrix gives new ones, and
half-made files never stand under a level's name. A row of type `file` keeps a file's fingerprint:
another file that takes its name is noticed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

from localspec.errors import DiskSpaceError, InvalidOptionError, LocalspecError, ModelFileError
from localspec.gguf.fingerprint import fingerprint
from localspec.gguf.header import read_header
from localspec.gguf.parts import part_paths
from localspec.gguf.types import UNQUANTISED
from localspec.jsonl_file import Row
from localspec.llama.quantize import QUANT_TYPES, quantize
from localspec.models.made_levels import level_path
from localspec.visible import visible

__all__ = [
    "LevelBegun",
    "ModelFile",
    "changed_since",
    "file_row",
    "is_replaced",
    "level_label",
    "levels",
    "model_file",
    "require_types",
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


@dataclass(frozen=True, slots=True)
class LevelBegun:
    """A level is about to be made; `growing` is the file to watch."""

    source: Path
    type_name: str
    growing: Path


def require_types(names: Iterable[str]) -> tuple[str, ...]:
    """The names in capitals, without repeats; raises InvalidOptionError for one unknown."""
    found = tuple(dict.fromkeys(name.strip().upper() for name in names if name.strip()))
    for name in found:
        if name not in QUANT_TYPES:
            raise InvalidOptionError(
                f"unknown quant type {name!r}: choose from {', '.join(sorted(QUANT_TYPES))}"
            )
    return found


def levels(
    source: Path,
    reference: str,
    type_names: Iterable[str],
    *,
    importance: Path | None = None,
    on_make: Callable[[LevelBegun], None] | None = None,
) -> tuple[ModelFile, ...]:
    """The levels of a source, made where they are missing; a level that the source has is itself.

    A source that cannot be read, or a level that llama.cpp cannot make, comes back with
    its error, so that the others go on. Raises DiskSpaceError.
    """
    original = model_file(source, reference)
    if original.error is not None:
        return (original,)
    found = []
    for name in require_types(type_names):
        if name == original.quant:
            found.append(original)
            continue
        path = level_path(source, name, importance)
        try:
            if not path.is_file():
                _make(source, path, name, importance, on_make)
        except DiskSpaceError:
            raise
        except LocalspecError as error:
            label = level_label(source, name)
            found.append(ModelFile(label, path, str(path), name, error=str(error), source=source))
            continue
        found.append(model_file(path, str(path), source=source))
    return tuple(found)


def _make(
    source: Path,
    path: Path,
    type_name: str,
    importance: Path | None,
    on_make: Callable[[LevelBegun], None] | None,
) -> None:
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(str(folder / f".{path.name}.lock")):
            for old in folder.glob(f".{path.name}.*.part"):  # of a process that was killed
                old.unlink()
            if path.is_file():
                return

            def started(_header: object, growing: Path) -> None:
                if on_make is not None:
                    on_make(LevelBegun(source, type_name, growing))

            quantize(source, path, type_name, importance=importance, on_start=started)
    except LocalspecError:  # some of them are an OSError too
        raise
    except OSError as error:
        raise ModelFileError(
            f"the level {type_name} of {source.name} cannot be kept in {folder}: "
            f"{error.strerror or error}; set LOCALSPEC_CACHE to another folder"
        ) from None
    read_header(path)


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
