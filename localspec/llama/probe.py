"""Is this file safe to hand to llama.cpp? Asked once for each file and engine, then remembered.

First what its bytes say (localspec.gguf), then whether this build knows its architecture, then
a trial in a process of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from localspec.errors import EngineError, LocalspecError, ModelFileError
from localspec.gguf.header import GGUFHeader, read_header
from localspec.gguf.model_checks import check_model
from localspec.gguf.model_kind import require_language_model
from localspec.llama.architectures import knows_architecture
from localspec.llama.context import Context
from localspec.llama.devices import engine_identity, physical_cores
from localspec.llama.model import Model
from localspec.llama.rollback import rollback_refused
from localspec.llama.vocabulary import Vocabulary
from localspec.models.stored_costs import load_costs, save_costs
from localspec.processes import death, environment, module_command

__all__ = ["examine", "probe", "vet", "vetted_header"]

_CHECKS = 1  # counted up when a check is added, so that files are asked again


def vetted_header(path: Path, role: str, notes: list[str]) -> GGUFHeader:
    """The header of a language model that llama.cpp can be given without harm.

    role: such as `target`. notes: gets a line when the file could not be tried out. Raises
    ModelNotFoundError, ModelFileError, ModelKindError.
    """
    header = read_header(path)
    require_language_model(header, role)
    vet(header, notes)
    return header


def vet(header: GGUFHeader, notes: list[str]) -> None:
    """As vetted_header, for a header that was read already."""
    key = _key(header)
    if load_costs(header.path, key) is not None:
        return
    check_model(header)
    if not knows_architecture(header.architecture):
        raise ModelFileError(
            f"{header.path} is a model of the architecture {header.architecture!r}, which this "
            f"build of llama.cpp does not know: update it (pip install --upgrade "
            "llama-cpp-python), or choose another model"
        )
    reason = probe(header.path, header.total_size_bytes)
    if reason is None:
        save_costs(header.path, key, {"passed": True})
    else:
        notes.append(f"{header.path.name} was not tried out before it was loaded: {reason}")


def _key(header: GGUFHeader) -> dict[str, Any]:
    others = [part.stat() for part in header.parts[1:]]
    return {
        "vetted": _CHECKS,
        "engine": list(engine_identity()),
        "parts": [[status.st_size, status.st_mtime_ns] for status in others],
    }


_TRIED_WHOLE = 4 << 30  # bytes; of a larger file only the structure is tried, not the weights
_SMALL = 64 << 20  # bytes; ggml's threads wait by spinning, which hurts small models most
_N_CTX = 256
_START_S, _BYTES_PER_S = 120.0, 20e6  # a slow disk
_MOST_PIECES = 4096
_ALONE = {
    "GGML_NO_BACKTRACE": "1",  # or a debugger is started on an assertion
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
    "GGML_VK_VISIBLE_DEVICES": "",
}


def probe(path: Path, size_bytes: int) -> str | None:
    """Try a model file in a process of its own. None: it went well; else why it was not tried.

    size_bytes: of all parts. Raises ModelFileError when llama.cpp refuses the file, dies of it,
    or does not come to an end.
    """
    command = module_command(__name__)
    if command is None:
        return "there is no Python interpreter to start"
    try:
        ended = subprocess.run(
            [*command, os.path.abspath(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment(_ALONE),
            timeout=_START_S + size_bytes / _BYTES_PER_S,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError as error:
        return f"no process could be started ({error.strerror or error})"
    except subprocess.TimeoutExpired as error:
        raise ModelFileError(
            f"llama.cpp did not come to an end with {path} within {error.timeout:.0f} s: the file "
            "may be damaged, or the disk very slow. Fetch it again, or try once more"
        ) from None
    said = ended.stderr.decode("utf-8", "replace")
    answer = _answer(ended.stdout)
    if answer is not None and answer.get("refused") is not None:
        raise ModelFileError(str(answer["refused"]))
    if answer is not None and ended.returncode == 0:
        return None
    if ended.returncode == 1:  # Python's own failure, such as a package that is not importable
        return f"the process failed: {_last_line(said)}"
    raise ModelFileError(
        f"{path} cannot be loaded: llama.cpp dies of it (a trial process "
        f"{death(ended.returncode)}{_last_words(said)}). The file is damaged, or this build has a "
        "fault with it: fetch it again, or update llama-cpp-python"
    )


def examine(path: Path) -> None:
    """Load a model from `path`, decode a little, and free it; what a session would do.

    Raises a LocalspecError for what llama.cpp refuses; a native fault ends the process.
    """
    size = path.stat().st_size
    whole = size <= _TRIED_WHOLE
    with Model(path, n_gpu_layers=0, mmap=True, allocate=whole) as model:
        vocabulary = model.vocabulary
        n_threads = 1 if size <= _SMALL else physical_cores()
        context = Context(model, n_ctx=_N_CTX, n_batch=32, max_rows=2, n_threads=n_threads)
        try:
            if whole:
                context.decode([0, vocabulary.n_tokens - 1], n_rows=2)
                context.decode([vocabulary.bos or 0], n_rows=1)
                context.truncate(2)
                rollback_refused(context)
        finally:
            context.close()
        _read(vocabulary)
        _ = model.description, model.chat_template


def _read(vocabulary: Vocabulary) -> None:
    """Ask for what a session asks for: text to tokens, tokens to text."""
    _ = vocabulary.markers, vocabulary.bos_text, vocabulary.eos_text
    for token in range(0, vocabulary.n_tokens, -(-vocabulary.n_tokens // _MOST_PIECES)):
        vocabulary.piece(token)
        vocabulary.label(token)
        vocabulary.is_eog(token)
    try:
        for text in ("a é\n", "<|im_start|>a</s>"):
            vocabulary.tokenize(text)
            vocabulary.tokenize(text, parse_special=True)
    except EngineError:
        return  # one that cannot spell text: it takes token ids, and says so when asked


def _answer(out: bytes) -> dict[str, object] | None:
    lines = out.splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _last_words(said: str) -> str:
    """The assertion that failed, or what an exception said, to be put into a sentence."""
    found = re.findall(r"[\w.-]+:\d+: .*|what\(\): .*", said)
    words = found[-1].strip() if found else ""
    return f", saying: {words[:200]}" if words else ""


def _last_line(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1][:200] if lines else "no reason given"


def _offer_to_the_killer() -> None:
    """When memory runs out, this process goes first, and not the one that waits for it."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return


def main() -> None:
    """The process: try the file named on the command line."""
    _offer_to_the_killer()
    refused = None
    try:
        examine(Path(sys.argv[1]))
    except LocalspecError as error:
        refused = str(error)
    print(json.dumps({"refused": refused}), flush=True)
    os._exit(0)  # what native code does at an ordinary exit is not the question


if __name__ == "__main__":
    main()
