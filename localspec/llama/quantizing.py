"""llama.cpp's quantiser, one long native call, in a process that can be stopped.

Run as a module it is that process: a JSON object as its argument, an empty line or the reason of
a failure as its answer.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import llama_cpp

from localspec.errors import EngineError, LocalspecError
from localspec.llama.importance import read_importance
from localspec.llama.native import init_backend, last_error
from localspec.processes import death, environment, module_command

__all__ = ["write_level"]

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
