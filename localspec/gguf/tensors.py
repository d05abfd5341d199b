"""The tensor table of a GGUF file: what each entry says, and whether the bytes can be there.

The rules are those of ggml/src/gguf.cpp, checked here so that a refusal names the tensor, the
numbers and the next step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ModelFileError
from localspec.gguf.types import GGML_TYPES, REMOVED_TYPES

__all__ = ["Tensor", "check_tensors"]

_MAX_NAME = 64  # ggml.h, GGML_MAX_NAME, the closing zero included
_MAX_DIMS = 4  # ggml.h, GGML_MAX_DIMS
_MAX_ELEMENTS = (1 << 63) - 1
_MAX_TYPES = 1024  # far more than ggml has


@dataclass(frozen=True, slots=True)
class Tensor:
    """Name, shape (innermost first), ggml type, and where its bytes lie after its part's header."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int

    @property
    def n_elements(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @property
    def type_name(self) -> str:
        """Such as Q4_K, or `type 99` where it is unknown."""
        return GGML_TYPES.get(self.type_number, (f"type {self.type_number}", 1, 0))[0]

    @property
    def size_bytes(self) -> int | None:
        """Bytes in the file, None for a type this version does not know."""
        known = GGML_TYPES.get(self.type_number)
        if known is None:
            return None
        _, elements, size = known
        return self.n_elements // elements * size


def check_tensors(
    path: Path, tensors: Sequence[Tensor], *, start: int, alignment: int, size_bytes: int
) -> None:
    """Raise ModelFileError unless every tensor is well formed and lies where it must, in the file.

    start: byte at which tensor data begins; size_bytes: of the file.
    """
    seen: set[str] = set()
    expected: int | None = 0
    for tensor in tensors:
        reason = _malformed(tensor, seen)
        if reason:
            raise ModelFileError(f"{path} is damaged: {reason}. Fetch it again")
        _require_type(path, tensor)
        seen.add(tensor.name)
        if expected is not None and tensor.offset != expected:
            where = "is misaligned" if tensor.offset % alignment else "overlaps or leaves a gap"
            raise ModelFileError(
                f"{path} is damaged: tensor {tensor.name!r} {where}: it begins at byte "
                f"{tensor.offset:,} of the tensor data and must begin at {expected:,}. Fetch it "
                "again"
            )
        size = tensor.size_bytes  # None for a type newer than this table: the engine may know it
        expected = None if size is None else tensor.offset + _aligned(size, alignment)
    needed = max((start + t.offset + (t.size_bytes or 0) for t in tensors), default=0)
    if needed > size_bytes:
        raise ModelFileError(
            f"{path} is truncated: its tensors end at byte {needed:,}, but the file has "
            f"{size_bytes:,} bytes ({needed - size_bytes:,} are missing). Fetch it again"
        )


def _malformed(tensor: Tensor, seen: set[str]) -> str | None:
    name, shape = tensor.name, tensor.shape
    if len(name.encode("utf-8", "surrogateescape")) >= _MAX_NAME:
        return f"a tensor's name has {len(name)} characters ({name[:20]!r}…)"
    if name in seen:
        return f"tensor {name!r} is there twice"
    if len(shape) > _MAX_DIMS:
        return f"tensor {name!r} has {len(shape)} dimensions"
    if any(n > _MAX_ELEMENTS for n in shape) or tensor.n_elements > _MAX_ELEMENTS:
        return f"tensor {name!r} has the impossible shape {shape}"
    known = GGML_TYPES.get(tensor.type_number)
    if known is not None and shape and shape[0] % known[1]:
        return (
            f"tensor {name!r} has rows of {shape[0]:,} weights, and {known[0]} needs a multiple of "
            f"{known[1]}"
        )
    return None


def _require_type(path: Path, tensor: Tensor) -> None:
    if tensor.type_number in REMOVED_TYPES:
        old, new = REMOVED_TYPES[tensor.type_number]
        raise ModelFileError(
            f"{path} is quantised as {old}, which llama.cpp no longer reads: fetch the model as "
            f"{new}"
        )
    if tensor.type_number >= _MAX_TYPES:
        raise ModelFileError(
            f"{path} is damaged: tensor {tensor.name!r} has quant type {tensor.type_number}. Fetch "
            "it again"
        )


def _aligned(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment
