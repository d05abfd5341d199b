"""Is this file safe to hand to llama.cpp? Asked once for each file and engine, then remembered.

First what its bytes say (localspec.gguf), then whether this build knows its architecture, then
a trial in a process of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from localspec.errors import ModelFileError
from localspec.gguf.header import GGUFHeader, read_header
from localspec.gguf.model_checks import check_model
from localspec.gguf.model_kind import require_language_model
from localspec.llama.architectures import knows_architecture
from localspec.llama.devices import engine_identity
from localspec.llama.probe import probe
from localspec.models.stored_costs import load_costs, save_costs

__all__ = ["vet", "vetted_header"]

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
