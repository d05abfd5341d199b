"""Quant levels of a source file, made once and kept in the cache folder.

A level is named after its source and remembers it: the source's path, size and time of change and
the importance matrix are part of the key, so that a changed source gives new levels. Half-made
files never stand under a level's name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from localspec.bench.contender import Contender, contender, level_label
from localspec.errors import DiskSpaceError, InvalidOptionError, LocalspecError, ModelFileError
from localspec.library.gguf_header import read_header
from localspec.llama.quantize import QUANT_TYPES, quantize

__all__ = ["Making", "levels", "levels_folder", "require_types"]


@dataclass(frozen=True, slots=True)
class Making:
    """A level is about to be made; `growing` is the file to watch."""

    source: Path
    type_name: str
    growing: Path


def levels_folder() -> Path:
    """Where levels are kept: below $LOCALSPEC_CACHE, else below the platform's cache folder."""
    chosen = os.environ.get("LOCALSPEC_CACHE")
    root = Path(chosen).expanduser() if chosen else user_cache_path("localspec")
    return root / "levels"


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
    on_make: Callable[[Making], None] | None = None,
) -> tuple[Contender, ...]:
    """The levels of a source, made where they are missing; a level that the source has is itself.

    A source that cannot be read, or a level that llama.cpp cannot make, comes back as a contender
    with its error, so that the others go on. Raises DiskSpaceError.
    """
    original = contender(source, reference)
    if original.error is not None:
        return (original,)
    found = []
    for name in require_types(type_names):
        if name == original.quant:
            found.append(original)
            continue
        path = _level_path(source, name, importance)
        try:
            if not path.is_file():
                _make(source, path, name, importance, on_make)
        except DiskSpaceError:
            raise
        except LocalspecError as error:
            label = level_label(source, name)
            found.append(Contender(label, path, str(path), name, error=str(error), source=source))
            continue
        found.append(contender(path, str(path), source=source))
    return tuple(found)


def _make(
    source: Path,
    path: Path,
    type_name: str,
    importance: Path | None,
    on_make: Callable[[Making], None] | None,
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
                    on_make(Making(source, type_name, growing))

            quantize(source, path, type_name, importance=importance, on_start=started)
    except OSError as error:
        raise ModelFileError(
            f"the level {type_name} of {source.name} cannot be kept in {folder}: "
            f"{error.strerror or error}; set LOCALSPEC_CACHE to another folder"
        ) from None
    read_header(path)


def _level_path(source: Path, type_name: str, importance: Path | None) -> Path:
    key = [_identity(source), _identity(importance) if importance is not None else None]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:10]
    return levels_folder() / f"{source.stem}.as-{type_name}.{digest}.gguf"


def _identity(path: Path) -> list[str | int]:
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]
