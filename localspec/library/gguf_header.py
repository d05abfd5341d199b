"""What a GGUF file says about itself, read without loading weights.

Parses the header by hand and skips long arrays: gguf.GGUFReader walks them and needs seconds on
a vocabulary of 150,000 tokens. Format: ggml's docs/gguf.md. Whatever the bytes are, the outcome
is a header or a named error.
"""

from __future__ import annotations

import math
import mmap
import re
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.errors import ModelFileError, ModelKindError, ModelNotFoundError

__all__ = ["GGUFHeader", "Tensor", "part_paths", "read_header", "require_language_model"]

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
            10: "<Q", 11: "<q", 12: "<d"}  # fmt: skip
_STRING, _ARRAY = 8, 9
_SPLIT_NAME = re.compile(
    r"^(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)$", re.IGNORECASE
)
_MAX_KEYS, _MAX_TENSORS, _MAX_TEXT, _MAX_DIMS = 1 << 16, 1 << 18, 1 << 26, 8
_ENCODERS = ("bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3",
             "modern-bert", "eurobert", "t5encoder", "gemma-embedding", "llama-embed")  # fmt: skip
_DIFFUSION = ("dream", "llada", "llada-moe", "rnd1")

# number: (name, elements in a block, bytes of a block); ggml/src/ggml.c, type_traits
GGML_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18), 42: ("Q2_0", 64, 18),
}  # fmt: skip

# general.file_type; llama.h, enum llama_ftype
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0",
    38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
}  # fmt: skip
UNQUANTISED = ("F32", "F16", "BF16")


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


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """One file, or the first part of a split one; `parts` lists all of them.

    metadata: of the first part; scalars and strings as they are, of an array its length alone.
    tensors: of all parts. token_bytes: the raw tokenizer.ggml.tokens array, so that equal
    vocabularies compare at once; n_vocab: the number of texts in it.
    """

    path: Path
    version: int
    size_bytes: int
    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]
    parts: tuple[Path, ...]
    token_bytes: bytes = field(repr=False)
    n_vocab: int

    @property
    def architecture(self) -> str:
        """Such as `llama`, `qwen2`; empty when the file does not say."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def name(self) -> str:
        """The model's own name, else the file's."""
        return str(self.metadata.get("general.name") or self.path.stem)

    @property
    def kind(self) -> str:
        """Such as `language model`, `vision projector`, `LoRA adapter`, `embedding model`."""
        return _kind(self)

    @property
    def n_params(self) -> int:
        """Weights in all parts."""
        return sum(tensor.n_elements for tensor in self.tensors)

    @property
    def quant(self) -> str:
        """Such as Q4_K_M: the declared file type, else the most common tensor type."""
        declared = FILE_TYPES.get(self.metadata.get("general.file_type", -1))
        if declared:
            return declared
        sizes: Counter[str] = Counter()
        for tensor in self.tensors:
            sizes[tensor.type_name] += tensor.n_elements
        return sizes.most_common(1)[0][0] if sizes else "unknown"

    @property
    def context_length(self) -> int | None:
        """Tokens that the model was trained for."""
        found = self.metadata.get(f"{self.architecture}.context_length")
        return int(found) if isinstance(found, int) else None

    @property
    def tokenizer_model(self) -> str:
        """Such as `gpt2` (byte-level BPE) or `llama` (SentencePiece)."""
        return str(self.metadata.get("tokenizer.ggml.model", "none"))

    @property
    def chat_template(self) -> str | None:
        """Jinja source."""
        found = self.metadata.get("tokenizer.chat_template")
        return found if isinstance(found, str) else None

    @property
    def licence(self) -> str | None:
        """As the file states it."""
        found = self.metadata.get("general.license")
        return found if isinstance(found, str) else None

    @property
    def total_size_bytes(self) -> int:
        """All parts together."""
        return sum(part.stat().st_size for part in self.parts)

    def token_texts(self) -> Iterator[bytes]:
        """The spelling of each token, in id order."""
        at = 0
        while at < len(self.token_bytes):
            (n,) = struct.unpack_from("<Q", self.token_bytes, at)
            yield self.token_bytes[at + 8 : at + 8 + n]
            at += 8 + n


def read_header(path: Path) -> GGUFHeader:
    """Read and check a GGUF file; any part of a split model stands for the whole.

    Raises ModelNotFoundError for a missing file or part, ModelFileError for anything that is
    not an intact GGUF.
    """
    path = Path(path)
    parts = _parts(path)
    headers = [_read_one(part, parts) for part in parts]
    for no, header in enumerate(headers):
        _check_split(header, no, parts)
    if len(headers) == 1:
        return headers[0]
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    return replace(headers[0], tensors=tensors)


def require_language_model(header: GGUFHeader, role: str) -> None:
    """Raise ModelKindError unless the file can write text; `role` is target or draft."""
    if header.kind == LANGUAGE_MODEL:
        return
    article = "an" if header.kind[0] in "aeiou" else "a"
    raise ModelKindError(
        f"{header.path} cannot be the {role}: it is {article} {header.kind}. {_ADVICE[header.kind]}"
    )


LANGUAGE_MODEL = "language model"
_ADVICE = {
    "vision projector": "Give the language model that it belongs to",
    "LoRA adapter": "A LoRA needs its base model: give that file",
    "control vector": "Give the model that it steers",
    "importance matrix": "Give the model that it was measured on",
    "embedding model": "Give a model that generates text",
    "encoder-decoder model": "Give a decoder-only model, such as Llama, Qwen or Gemma",
    "diffusion model": "Give a model that writes one token after another",
    "vocabulary without weights": "Give the model file itself",
    "model without a vocabulary": "Convert it again with its tokenizer",
}


def _kind(header: GGUFHeader) -> str:
    architecture, general_type = header.architecture, header.metadata.get("general.type")
    causal = header.metadata.get(f"{architecture}.attention.causal", True)
    if architecture == "clip" or general_type == "mmproj":
        return "vision projector"
    if general_type == "adapter":
        return "LoRA adapter"
    if architecture == "controlvector":
        return "control vector"
    if general_type == "imatrix":
        return "importance matrix"
    if architecture in _DIFFUSION:
        return "diffusion model"
    if architecture in _ENCODERS or causal is False:
        return "embedding model"
    if architecture == "t5":
        return "encoder-decoder model"
    if not header.tensors:
        return "vocabulary without weights"
    return LANGUAGE_MODEL if header.n_vocab else "model without a vocabulary"


def _parts(path: Path) -> tuple[Path, ...]:
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, PermissionError):
            raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
        raise ModelNotFoundError(f"there is no file {path}") from None
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError(f"{path} is a folder: give the .gguf file in it")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{path} is a device or a pipe: give a .gguf file on a disk")
    parts = part_paths(path)
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise ModelNotFoundError(
            f"{path.name} is one of {len(parts)} parts, and {len(missing)} are missing from "
            f"{path.parent}: {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}"
        )
    return parts


def part_paths(path: Path) -> tuple[Path, ...]:
    """All parts of a split model, by the name of one of them; the path itself if it is whole."""
    found = _SPLIT_NAME.match(path.name)
    if not found:
        return (path,)
    count = int(found["count"])
    ending = f"-of-{count:05d}{found['suffix']}"
    names = [f"{found['stem']}-{i:05d}{ending}" for i in range(1, count + 1)]
    return tuple(path.with_name(name) for name in names) or (path,)


def _check_split(header: GGUFHeader, no: int, parts: tuple[Path, ...]) -> None:
    said_no = header.metadata.get("split.no", no)
    said_count = header.metadata.get("split.count", 0) or len(parts)
    if isinstance(said_count, int) and said_count > 1 and len(parts) == 1:
        raise ModelFileError(
            f"{parts[0]} is one of {said_count} parts, and they find each other by name: call it "
            f"as it was, such as model-00001-of-{said_count:05d}.gguf"
        )
    if (said_no, said_count) != (no, len(parts)):
        raise ModelFileError(
            f"{parts[no]} says it is part {said_no} (from 0) of {said_count}, its name says part "
            f"{no} of {len(parts)}: fetch the model again"
        )


def _read_one(path: Path, parts: tuple[Path, ...]) -> GGUFHeader:
    try:
        size = path.stat().st_size
        if size == 0:
            raise ModelFileError(f"{path} is empty (0 bytes): fetch it again")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Parser(path, data, size).parse(parts)
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

    def parse(self, parts: tuple[Path, ...]) -> GGUFHeader:
        try:
            version, n_tensors, n_keys = self._preamble()
            metadata = dict(self._pair() for _ in range(n_keys))
            tensors = tuple(self._tensor() for _ in range(n_tensors))
        except (struct.error, IndexError, OverflowError):
            raise self._truncated("its header does not end") from None
        self._check_extent(metadata, tensors)
        return GGUFHeader(
            path=parts[0],
            version=version,
            size_bytes=self._size,
            metadata=metadata,
            tensors=tensors,
            parts=parts,
            token_bytes=self._token_bytes,
            n_vocab=self._n_vocab,
        )

    def _preamble(self) -> tuple[int, int, int]:
        magic = self._data[:4]
        if magic != b"GGUF":
            if self._data[:23] == b"version https://git-lfs":
                raise ModelFileError(
                    f"{self._path} is a Git LFS pointer, not the model: run `git lfs pull`"
                )
            raise ModelFileError(
                f"{self._path} is not a GGUF file (it begins with {magic!r}): convert the model "
                "with llama.cpp's convert_hf_to_gguf.py, or fetch a .gguf"
            )
        self._at = 4
        version = self._number("<I")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            reason = "is big-endian" if swapped in (2, 3) else f"has GGUF version {version}"
            raise ModelFileError(f"{self._path} {reason}; versions 2 and 3 can be read")
        n_tensors, n_keys = self._number("<Q"), self._number("<Q")
        if n_tensors > _MAX_TENSORS or n_keys > _MAX_KEYS:
            raise ModelFileError(
                f"{self._path} is damaged: it claims {n_tensors:,} tensors and {n_keys:,} keys"
            )
        return version, n_tensors, n_keys

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _raw_text(self) -> bytes:
        n = self._number("<Q")
        if n > _MAX_TEXT or self._at + n > self._size:
            raise self._truncated(f"a text of {n:,} bytes does not fit")
        text = self._data[self._at : self._at + n]
        self._at += n
        return text

    def _text(self) -> str:
        return self._raw_text().decode("utf-8", "replace")

    def _pair(self) -> tuple[str, Any]:
        key = self._text()
        kind = self._number("<I")
        if kind == _ARRAY:
            return key, self._array(key)
        return key, self._value(key, kind)

    def _value(self, key: str, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind not in _SCALARS:
            raise ModelFileError(f"{self._path} is damaged: {key!r} has unknown type {kind}")
        return self._number(_SCALARS[kind])

    def _array(self, key: str) -> int:
        kind, n = self._number("<I"), self._number("<Q")
        start = self._at
        if kind == _STRING:
            if n > self._size // 8:
                raise self._truncated(f"{key!r} claims {n:,} texts")
            unpack = struct.Struct("<Q").unpack_from
            at, data, size = self._at, self._data, self._size
            for _ in range(n):
                at += 8 + unpack(data, at)[0]
                if at > size:
                    raise self._truncated(f"{key!r} does not end")
            self._at = at
        elif kind in _SCALARS:
            self._at += n * struct.calcsize(_SCALARS[kind])
            if self._at > self._size:
                raise self._truncated(f"{key!r} claims {n:,} numbers")
        else:
            raise ModelFileError(f"{self._path} is damaged: {key!r} holds arrays of type {kind}")
        if key == "tokenizer.ggml.tokens" and kind == _STRING:
            self._token_bytes, self._n_vocab = self._data[start : self._at], int(n)
        return int(n)

    def _tensor(self) -> Tensor:
        name = self._text()
        n_dims = self._number("<I")
        if n_dims > _MAX_DIMS:
            raise ModelFileError(f"{self._path} is damaged: {name!r} has {n_dims} dimensions")
        shape = tuple(self._number("<Q") for _ in range(n_dims))
        return Tensor(name, shape, self._number("<I"), self._number("<Q"))

    def _check_extent(self, metadata: dict[str, Any], tensors: tuple[Tensor, ...]) -> None:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            raise ModelFileError(f"{self._path} is damaged: its alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        ends = [start + t.offset + (t.size_bytes or 0) for t in tensors]
        needed = max(ends, default=0)
        if needed > self._size:
            raise self._truncated(f"its tensors end at byte {needed:,}")

    def _truncated(self, why: str) -> ModelFileError:
        return ModelFileError(
            f"{self._path} is truncated or damaged: {why}, but the file has {self._size:,} bytes. "
            "Fetch it again"
        )
