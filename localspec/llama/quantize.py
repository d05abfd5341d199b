"""Another quant level of a GGUF file, by llama.cpp's own quantiser."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import llama_cpp

from localspec.errors import (
    DiskSpaceError,
    EngineError,
    InvalidOptionError,
    LocalspecError,
    ModelFileError,
)
from localspec.gguf.header import GGUFHeader, read_header
from localspec.gguf.model_kind import LANGUAGE_MODEL, kind_of
from localspec.gguf.parts import part_paths
from localspec.gguf.types import FILE_TYPES, GGML_TYPES, UNQUANTISED
from localspec.llama.importance import read_importance
from localspec.llama.native import init_backend, last_error
from localspec.llama.probe import vet
from localspec.processes import death, environment, module_command

__all__ = ["QUANT_TYPES", "TABLE_TYPES", "is_lossy", "quantize", "write_level"]

_READ_ONLY = ("NVFP4",)  # llama.cpp runs such files, but its quantiser does not write them
QUANT_TYPES = {name: number for number, name in FILE_TYPES.items() if name not in _READ_ONLY}
_NO_WEIGHTS = ("Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", *_READ_ONLY)
_NEED_MATRIX = ("IQ1_S", "IQ2_XXS", "IQ2_XS")  # ggml_quantize_requires_imatrix: ggml.c ends without
_OUTPUT, _EMBEDDING = "output.weight", "token_embd.weight"
TABLE_TYPES = {name: n for n, (name, _, _) in GGML_TYPES.items() if name not in _NO_WEIGHTS}


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
    output_type: str | None = None,
    embedding_type: str | None = None,
    on_start: Callable[[GGUFHeader, Path], None] | None = None,
) -> GGUFHeader:
    """Write `destination` as `type_name` (such as Q4_0); returns its header.

    A failed run leaves nothing behind: the file gets its name after it was checked. on_start is
    called with the source and the temporary path that grows. importance: a matrix by
    llama-imatrix, which the types below 3 bits need. output_type, embedding_type: of the two
    tables that are as wide as the vocabulary, which llama.cpp keeps finer than the rest; in a
    small draft model every step reads the first of them whole. Raises InvalidOptionError,
    ModelFileError, DiskSpaceError, EngineError.
    """
    number = QUANT_TYPES.get(type_name.upper())
    if number is None:
        raise InvalidOptionError(
            f"unknown quant type {type_name!r}: choose one of {', '.join(sorted(QUANT_TYPES))}"
        )
    header = read_header(source)
    tables = _table_types(header, output_type, embedding_type)
    if kind_of(header) == LANGUAGE_MODEL:
        vet(header, [])
    temporary = destination.with_name(f".{destination.name}.{os.getpid()}.part")
    _require_destination(header, destination, temporary, overwrite)
    matrix = read_importance(importance).means if importance is not None else {}
    _require_matrix(tables, matrix)  # told before anything is written
    folder = destination.parent
    free, needed = shutil.disk_usage(folder).free, _size_bytes(header.n_params, type_name.upper())
    if free < needed:
        raise DiskSpaceError(
            f"{destination} needs about {needed / 1e9:.1f} GB, but {folder} has "
            f"{free / 1e9:.1f} GB free: make room, or write to another disk"
        )
    try:
        if on_start is not None:
            on_start(header, temporary)
        write_level(
            header.path, temporary, number, n_threads or os.cpu_count() or 1, importance, tables
        )
        read_header(temporary)
        os.replace(temporary, destination)
    finally:
        temporary.unlink(missing_ok=True)
    return read_header(destination)


def _table_types(header: GGUFHeader, output: str | None, embedding: str | None) -> dict[str, int]:
    """ggml's numbers for `output` and `embedding`, those that were asked for."""
    tensors = {tensor.name: tensor for tensor in header.tensors}
    if output is not None and _OUTPUT not in tensors:
        if embedding is not None and embedding.upper() != output.upper():
            raise InvalidOptionError(
                f"{header.path.name} has one table for both input and output: it cannot be "
                f"{output} and {embedding} at once"
            )
        output, embedding = None, output
    asked = (("output", output, _OUTPUT), ("embedding", embedding, _EMBEDDING))
    found = {}
    for name, given, tensor_name in asked:
        if given is None:
            continue
        number = TABLE_TYPES.get(given.upper())
        if number is None:
            raise InvalidOptionError(
                f"unknown type {given!r} for the {name} table: choose one of "
                f"{', '.join(sorted(TABLE_TYPES))}"
            )
        tensor, block = tensors.get(tensor_name), GGML_TYPES[number][1]
        if tensor is not None and tensor.shape[0] % block:
            fitting = [n for n, i in TABLE_TYPES.items() if not tensor.shape[0] % GGML_TYPES[i][1]]
            raise InvalidOptionError(
                f"the {name} table of {header.path.name} has rows of {tensor.shape[0]:,}, which "
                f"{given.upper()} cannot cut into blocks of {block}: choose one of "
                f"{', '.join(sorted(fitting))}"
            )
        found[name] = number
    return found


def _require_matrix(tables: Mapping[str, int], matrix: Collection[str]) -> None:
    """llama.cpp refuses other tensors without a matrix, but these two end its process."""
    for name, number in tables.items():
        type_name = GGML_TYPES[number][0]
        tensor = _OUTPUT if name == "output" else _EMBEDDING
        if type_name in _NEED_MATRIX and tensor not in matrix:
            raise InvalidOptionError(
                f"{type_name} for the {name} table needs an importance matrix that holds {tensor} "
                "(llama-imatrix --process-output writes output.weight): give one with --imatrix, "
                "or choose a wider type"
            )


def _size_bytes(n_params: int, type_name: str) -> int:
    """A rough size: block scales and the layers kept finer cost about one bit a weight."""
    wide = {"F32": 4.0, "F16": 2.0, "BF16": 2.0}.get(type_name)
    digit = re.search(r"\d", type_name)
    bits = int(digit[0]) + 1 if digit else 8
    return int(n_params * (wide or bits / 8))


def _require_destination(
    header: GGUFHeader, destination: Path, temporary: Path, overwrite: bool
) -> None:
    if not destination.parent.is_dir():
        raise ModelFileError(f"there is no folder {destination.parent}")
    try:
        temporary.exists()  # its name is the longer one
        there = destination.exists()
    except OSError as error:
        raise ModelFileError(
            f"no file can be called {destination.name[:40]!r}…: {error.strerror or error}"
        ) from None
    if len(part_paths(destination)) > 1:
        raise ModelFileError(
            f"{destination.name} is the name of a part of a split model, and one whole file is "
            "written: give another name"
        )
    if destination.is_dir():
        raise ModelFileError(f"{destination} is a folder: give a file name")
    if not there:
        return
    if not destination.is_file():
        raise ModelFileError(f"{destination} is a device or a pipe: give a file name")
    if any(destination.samefile(part) for part in part_paths(header.path)):
        raise ModelFileError("source and destination are the same file")
    if not overwrite:
        raise ModelFileError(f"{destination} exists: use --overwrite, or another name")


_ON_THE_CPU = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}


def write_level(
    source: Path,
    destination: Path,
    number: int,
    n_threads: int,
    importance: Path | None,
    tables: dict[str, int] | None = None,
) -> None:
    """Write `destination` with llama.cpp's file type `number`; an interrupt ends it at once.

    tables: types of their own for `output` and `embedding`, as numbers of ggml. Raises EngineError
    with llama.cpp's own words.
    """
    command = module_command(__name__)
    if command is None:  # no interpreter to start: here, where an interrupt waits for its end
        _write(source, destination, number, n_threads, importance, tables or {})
        return
    asked = {
        "source": str(source.absolute()),
        "destination": str(destination.absolute()),
        "number": number,
        "n_threads": n_threads,
        "importance": None if importance is None else str(importance.absolute()),
        "tables": tables or {},
    }
    with subprocess.Popen(
        [*command, json.dumps(asked)],
        stdin=subprocess.PIPE,  # its end tells the process that nobody waits any more
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(_ON_THE_CPU),
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    ) as process:
        assert process.stdout is not None
        try:
            out = process.stdout.read()
            process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
    said = out.decode("utf-8", "replace").strip()
    if said:
        raise EngineError(said)
    if process.returncode:
        raise EngineError(f"quantising {source} failed: its process {death(process.returncode)}")


def _write(
    source: Path,
    destination: Path,
    number: int,
    n_threads: int,
    importance: Path | None,
    tables: dict[str, int],
) -> None:
    init_backend()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = number
    params.allow_requantize = True
    params.nthread = n_threads
    if "output" in tables:
        params.output_tensor_type = tables["output"]
    if "embedding" in tables:
        params.token_embedding_type = tables["embedding"]
    matrix = read_importance(importance) if importance is not None else None
    if matrix is not None:
        params.imatrix = ctypes.cast(matrix.native, type(params.imatrix))
    last_error()
    code = llama_cpp.llama_model_quantize(
        os.fsencode(source), os.fsencode(destination), ctypes.byref(params)
    )
    if code != 0:
        reason = last_error() or "no reason given"
        if "iostream error" in reason:
            reason += f" (a write failed: is there room in {destination.parent}?)"
        raise EngineError(f"llama.cpp could not quantise {source}: {reason}")


def _end_with_stdin() -> None:
    """A parent that was killed leaves no process behind that works for hours."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> int:
    """The process: 0 and no words, or 1 and the reason on stdout. It ends with its stdin."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what native code prints, a debugger's trace of its end too, is no answer
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    asked = json.loads(sys.argv[1])
    named = {
        name: asked[name] if asked[name] is None else Path(asked[name])
        for name in ("source", "destination", "importance")
    }
    try:
        _write(**{**asked, **named})
    except LocalspecError as error:
        os.write(answer, str(error).encode("utf-8", "replace"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
