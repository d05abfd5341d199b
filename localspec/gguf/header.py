"""What a model file says about itself, read without loading weights.

The bytes are gguf_parser's business, split models gguf_parts'; whether the model can be loaded is
model_checks' question.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import ModelFileError
from localspec.gguf.parser import parse_file
from localspec.gguf.parts import check_part, present_parts
from localspec.gguf.tensors import Tensor
from localspec.gguf.types import FILE_TYPES

__all__ = ["GGUFHeader", "Tensor", "read_header"]


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """One file, or the first part of a split one; `parts` lists all of them.

    metadata: of the first part; scalars and texts as they are, arrays as gguf_parser.Array.
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
    parts = present_parts(Path(path))
    found = [parse_file(part) for part in parts]
    for no, part in enumerate(found):
        check_part(part, no, parts)
    tensors = tuple(tensor for part in found for tensor in part.tensors)
    names = Counter(tensor.name for tensor in tensors) if len(parts) > 1 else Counter[str]()
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ModelFileError(
            f"{parts[0]}: tensor {twice[0]!r} is in two of the {len(parts)} parts: fetch the model "
            "again"
        )
    first = found[0]
    return GGUFHeader(
        path=parts[0],
        version=first.version,
        size_bytes=first.size_bytes,
        metadata=first.metadata,
        tensors=tensors,
        parts=parts,
        token_bytes=first.token_bytes,
        n_vocab=first.n_vocab,
    )
