"""The bytes of one GGUF file, read up to its weights.

Parses by hand and skips long arrays: gguf.GGUFReader walks them and needs seconds on a vocabulary
of 150,000 tokens. Format: ggml's docs/gguf.md. Whatever the bytes are, the outcome is what they
say or a ModelFileError.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import ModelFileError
from localspec.gguf.tensors import Tensor, check_tensors
from localspec.gguf.types import SCALARS

__all__ = ["Array", "ParsedFile", "describe", "parse_file"]

_STRING, _ARRAY = 8, 9
_MAX_KEYS, _MAX_TENSORS, _MAX_TEXT, _MAX_DIMS = 1 << 16, 1 << 18, 1 << 26, 8
_KEPT = 1024  # numbers of an array that are kept: one for each layer, not one for each token
_TOKENS = "tokenizer.ggml.tokens"


@dataclass(frozen=True, slots=True)
class Array:
    """An array of the metadata. type_number: of its elements (8 is text).

    values: the numbers of a short one, None for long ones and for texts.
    """

    type_number: int
    length: int
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """What one file says. metadata: scalars and texts as they are, arrays as Array.

    token_bytes: the raw tokenizer.ggml.tokens array; n_vocab: the number of texts in it.
    """

    version: int
    size_bytes: int
    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]
    token_bytes: bytes = field(repr=False)
    n_vocab: int


def parse_file(path: Path) -> ParsedFile:
    """Read and check one file of a model. Raises ModelFileError with what is wrong and what to do.

    The path must exist; parts of a split model are read one by one.
    """
    try:
        size = path.stat().st_size
        if size == 0:
            raise ModelFileError(f"{path} is empty (0 bytes): fetch it again")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Parser(path, data, size).parse()
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from None


class _Parser:
    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self._path = path
        self._data = data
        self._size = size
        self._at = 0
        self._token_bytes = b""
        self._n_vocab = 0

    def parse(self) -> ParsedFile:
        try:
            version, n_tensors, n_keys = self._preamble()
            metadata = self._metadata(n_keys)
            tensors = tuple(self._tensor() for _ in range(n_tensors))
        except (struct.error, IndexError, OverflowError):
            raise self._truncated("its header does not end") from None
        alignment = self._alignment(metadata)
        start = -(-self._at // alignment) * alignment
        check_tensors(self._path, tensors, start=start, alignment=alignment, size_bytes=self._size)
        return ParsedFile(version, self._size, metadata, tensors, self._token_bytes, self._n_vocab)

    def _preamble(self) -> tuple[int, int, int]:
        if self._data[:4] != b"GGUF":
            raise ModelFileError(f"{self._path} {describe(self._data[:64])}")
        self._at = 4
        version = self._number("<I")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            reason = "is big-endian" if swapped in (2, 3) else f"has GGUF version {version}"
            raise ModelFileError(
                f"{self._path} {reason}; versions 2 and 3, little-endian, can be read: fetch the "
                "model as one of them, or update localspec"
            )
        n_tensors, n_keys = self._number("<Q"), self._number("<Q")
        if n_tensors > _MAX_TENSORS or n_keys > _MAX_KEYS:
            raise ModelFileError(
                f"{self._path} is damaged: it claims {n_tensors:,} tensors and {n_keys:,} keys. "
                "Fetch it again"
            )
        return version, n_tensors, n_keys

    def _metadata(self, n_keys: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(n_keys):
            key, value = self._pair()
            if not key or key in found:
                what = f"the key {_shown(key)} is there twice" if key else "a key is empty"
                raise ModelFileError(f"{self._path} is damaged: {what}. Fetch it again")
            found[key] = value
        return found

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _text(self) -> str:
        n = self._number("<Q")
        if n > _MAX_TEXT or self._at + n > self._size:
            raise self._truncated(f"a text of {n:,} bytes does not fit")
        text = self._data[self._at : self._at + n]
        self._at += n
        return text.decode("utf-8", "replace")

    def _pair(self) -> tuple[str, Any]:
        key = self._text()
        kind = self._number("<I")
        if kind == _ARRAY:
            return key, self._array(key)
        if kind == _STRING:
            return key, self._text()
        if kind not in SCALARS:
            raise ModelFileError(
                f"{self._path} is damaged: {_shown(key)} has unknown type {kind}. Fetch it again"
            )
        return key, self._number(SCALARS[kind])

    def _array(self, key: str) -> Array:
        kind, n = self._number("<I"), self._number("<Q")
        if kind == _STRING:
            self._skip_texts(key, n)
            return Array(kind, n)
        if kind not in SCALARS:
            raise ModelFileError(
                f"{self._path} is damaged: {_shown(key)} holds arrays of type {kind}. Fetch it "
                "again"
            )
        start = self._at
        self._at += n * struct.calcsize(SCALARS[kind])
        if self._at > self._size:
            raise self._truncated(f"{_shown(key)} claims {n:,} numbers")
        if n > _KEPT:
            return Array(kind, n)
        form = f"<{n}{SCALARS[kind][1:]}"
        return Array(kind, n, struct.unpack_from(form, self._data, start))

    def _skip_texts(self, key: str, n: int) -> None:
        if n > self._size // 8:
            raise self._truncated(f"{_shown(key)} claims {n:,} texts")
        unpack = struct.Struct("<Q").unpack_from
        start = at = self._at
        data, size = self._data, self._size
        for _ in range(n):
            at += 8 + unpack(data, at)[0]
            if at > size:
                raise self._truncated(f"{_shown(key)} does not end")
        self._at = at
        if key == _TOKENS:
            self._token_bytes, self._n_vocab = data[start:at], n

    def _tensor(self) -> Tensor:
        name = self._text()
        n_dims = self._number("<I")
        if n_dims > _MAX_DIMS:
            raise ModelFileError(
                f"{self._path} is damaged: {_shown(name)} has {n_dims} dimensions. Fetch it again"
            )
        shape = tuple(self._number("<Q") for _ in range(n_dims))
        return Tensor(name, shape, self._number("<I"), self._number("<Q"))

    def _alignment(self, metadata: dict[str, Any]) -> int:
        found = metadata.get("general.alignment", 32)
        if not isinstance(found, int) or not 0 < found <= 1 << 20 or found & (found - 1):
            raise ModelFileError(
                f"{self._path} is damaged: its alignment is {found!r}, which is no power of two. "
                "Fetch it again"
            )
        return found

    def _truncated(self, why: str) -> ModelFileError:
        return ModelFileError(
            f"{self._path} is truncated or damaged: {why}, but the file has {self._size:,} bytes. "
            "Fetch it again"
        )


def _shown(name: str) -> str:
    """A name for a message; damage can make it long."""
    return repr(name if len(name) <= 64 else f"{name[:64]}…")


_CONVERT = "convert the model with llama.cpp's convert_hf_to_gguf.py, or fetch a .gguf"

_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (rb"version https://git-lfs", "is a Git LFS pointer, not the model: run `git lfs pull`"),
    (rb"FUGG", "is a big-endian GGUF: fetch a little-endian one"),
    (rb"lmgg|fmgg|tjgg|algg|ggml|ggmf|ggjt", f"is in a format before GGUF (GGML): {_CONVERT}"),
    (rb"(?s).{8}\{\s*\"", f"is a safetensors file: {_CONVERT}"),
    (rb"PK\x03\x04", f"is a zip archive (a PyTorch checkpoint, or packed): {_CONVERT}"),
    (rb"\x80[\x02-\x05]", f"is a Python pickle, which is never opened: {_CONVERT}"),
    (rb"\x1f\x8b|\x28\xb5\x2f\xfd|BZh|\xfd7zXZ", "is compressed: unpack it first"),
    (rb"(?i)\s*<(!doctype|html|\?xml)", "is a web page, perhaps an error's: fetch it again"),
    (rb"\s*[\{\[]", f"is JSON, such as a model's config: {_CONVERT}"),
)  # fmt: skip


def describe(beginning: bytes) -> str:
    """What the file is and what to do, to follow its name. beginning: its first 64 bytes."""
    for pattern, words in _BEGINNINGS:
        if re.match(pattern, beginning):
            return words
    return f"is not a GGUF file (it begins with {beginning[:4]!r}): {_CONVERT}"
