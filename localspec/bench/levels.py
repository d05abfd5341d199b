"""Quant levels of a source file, made once and kept in the cache folder.

A changed source or importance matrix gives new levels. Half-made files never stand under a level's
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from localspec.bench.model_files import ModelFile, level_label, model_file
from localspec.errors import DiskSpaceError, InvalidOptionError, LocalspecError, ModelFileError
from localspec.gguf.header import read_header
from localspec.llama.quantize import QUANT_TYPES, quantize
from localspec.models.made_levels import level_path

__all__ = ["LevelBegun", "levels", "require_types"]


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
