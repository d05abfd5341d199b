"""Another quant level of a GGUF file, by llama.cpp's own quantiser."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from localspec.errors import DiskSpaceError, InvalidOptionError, ModelFileError
from localspec.library.gguf_header import GGUFHeader, read_header
from localspec.library.gguf_types import FILE_TYPES, UNQUANTISED
from localspec.library.model_kind import LANGUAGE_MODEL, kind_of
from localspec.llama.importance import read_importance
from localspec.llama.quantizing import write_level
from localspec.llama.vetting import vet

__all__ = ["QUANT_TYPES", "is_lossy", "quantize"]

_READ_ONLY = ("NVFP4",)  # llama.cpp runs such files, but its quantiser does not write them
QUANT_TYPES = {name: number for number, name in FILE_TYPES.items() if name not in _READ_ONLY}


def is_lossy(header: GGUFHeader) -> bool:
    """True when the file is quantised already, so that requantising loses twice."""
    return header.quant not in UNQUANTISED


def quantize(
    source: Path,
    destination: Path,
    type_name: str,
    *,
    n_threads: int | None = None,
    overwrite: bool = False,
    importance: Path | None = None,
    on_start: Callable[[GGUFHeader, Path], None] | None = None,
) -> GGUFHeader:
    """Write `destination` as `type_name` (such as Q4_0); returns its header.

    A failed run leaves nothing behind: the file gets its name after it was checked. on_start is
    called with the source and the temporary path that grows. importance: a matrix by
    llama-imatrix, which the types below 3 bits need. Raises InvalidOptionError, ModelFileError,
    DiskSpaceError, EngineError.
    """
    number = QUANT_TYPES.get(type_name.upper())
    if number is None:
        raise InvalidOptionError(
            f"unknown quant type {type_name!r}: choose one of {', '.join(sorted(QUANT_TYPES))}"
        )
    header = read_header(source)
    if kind_of(header) == LANGUAGE_MODEL:
        vet(header, [])
    _require_destination(source, destination, overwrite)
    if importance is not None:
        read_importance(importance)  # told before anything is written
    folder = destination.parent
    free, needed = shutil.disk_usage(folder).free, _size_bytes(header.n_params, type_name.upper())
    if free < needed:
        raise DiskSpaceError(
            f"{destination} needs about {needed / 1e9:.1f} GB, but {folder} has "
            f"{free / 1e9:.1f} GB free: make room, or write to another disk"
        )
    temporary = destination.with_name(f".{destination.name}.{os.getpid()}.part")
    try:
        if on_start is not None:
            on_start(header, temporary)
        write_level(header.path, temporary, number, n_threads or os.cpu_count() or 1, importance)
        read_header(temporary)
        os.replace(temporary, destination)
    finally:
        temporary.unlink(missing_ok=True)
    return read_header(destination)


def _size_bytes(n_params: int, type_name: str) -> int:
    """A rough size: block scales and the layers kept finer cost about one bit a weight."""
    wide = {"F32": 4.0, "F16": 2.0, "BF16": 2.0}.get(type_name)
    digit = re.search(r"\d", type_name)
    bits = int(digit[0]) + 1 if digit else 8
    return int(n_params * (wide or bits / 8))


def _require_destination(source: Path, destination: Path, overwrite: bool) -> None:
    if not destination.parent.is_dir():
        raise ModelFileError(f"there is no folder {destination.parent}")
    if destination.is_dir():
        raise ModelFileError(f"{destination} is a folder: give a file name")
    if destination.exists():
        if destination.samefile(source):
            raise ModelFileError("source and destination are the same file")
        if not overwrite:
            raise ModelFileError(f"{destination} exists: use --overwrite, or another name")
