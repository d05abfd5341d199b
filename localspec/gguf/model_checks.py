"""Everything that can be known about a model before llama.cpp sees it: its sizes and its tokenizer.

src/llama-vocab.cpp asserts that no two tokens are spelled alike, which ends the process; the rest
it refuses or replaces by guesses.
"""

from __future__ import annotations

from localspec.errors import ModelFileError
from localspec.gguf.header import GGUFHeader
from localspec.gguf.hyperparameters import check_hyperparameters
from localspec.gguf.parser import Array

__all__ = ["check_model", "check_tokenizer"]

_TEXT = 8  # gguf.h, GGUF_TYPE_STRING
_INT32 = 5
_BPE = ("gpt2", "gemma4", "hybriddna", "whitespace")
_NONE = (0xFFFFFFFF, -1)  # how converters write "there is no such token"
_NEEDED_IDS = ("bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id")


def check_tokenizer(header: GGUFHeader) -> None:
    """Raise ModelFileError for a vocabulary that contradicts itself or the weights."""
    for check in (_lists, _ids, _rows, _doubles):
        reason = check(header)
        if reason:
            raise ModelFileError(
                f"{header.path} has a tokenizer that cannot be used: {reason}. Fetch the model "
                "again, or convert it again"
            )


def _lists(header: GGUFHeader) -> str | None:
    n = header.n_vocab
    for key in ("scores", "token_type"):
        found = header.metadata.get(f"tokenizer.ggml.{key}")
        if found is None:
            continue
        if not isinstance(found, Array) or found.type_number == _TEXT:
            return f"its {key} is no list of numbers"
        if found.length < n:
            return f"its {key} has {found.length:,} entries for {n:,} tokens"
    types = header.metadata.get("tokenizer.ggml.token_type")
    if isinstance(types, Array) and types.type_number != _INT32:
        return "its token_type holds numbers of a wrong type"
    merges = header.metadata.get("tokenizer.ggml.merges")
    if merges is not None and not (isinstance(merges, Array) and merges.type_number == _TEXT):
        return "its merges are no list of texts"
    needs_none = header.metadata.get("tokenizer.ggml.pre") == "kimi-k2"
    if merges is None and header.tokenizer_model in _BPE and not needs_none:
        return f"it is of the {header.tokenizer_model} kind and has no merges"
    return None


def _ids(header: GGUFHeader) -> str | None:
    for key in _NEEDED_IDS:
        found = header.metadata.get(f"tokenizer.ggml.{key}")
        if found is None or found in _NONE:
            continue
        if not isinstance(found, int) or not 0 <= found < header.n_vocab:
            said = f"{found:,}" if isinstance(found, int) else repr(found)[:40]
            return f"its {key} is {said}, and the ids go from 0 to {header.n_vocab - 1:,}"
    return None


def _rows(header: GGUFHeader) -> str | None:
    embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if embedding is not None and len(embedding.shape) == 2:
        n_rows = embedding.shape[1]
        if n_rows != header.n_vocab:
            return f"it has {header.n_vocab:,} tokens, and the weights have {n_rows:,} rows"
    return None


def _doubles(header: GGUFHeader) -> str | None:
    """Two tokens of one spelling; llama.cpp calls an empty one [EMPTY_id]."""
    seen: dict[bytes, int] = {}
    for token, text in enumerate(header.token_texts()):
        first = seen.setdefault(text or b"[EMPTY_%d]" % token, token)
        if first != token:
            return f"tokens {first:,} and {token:,} are both spelled {_shown(text)}"
    return None


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))


def check_model(header: GGUFHeader) -> None:
    """Raise ModelFileError unless the sizes and the tokenizer of a language model hold together.

    The header itself was checked when it was read. Takes about 50 ms for 150,000 tokens.
    """
    check_hyperparameters(header)
    check_tokenizer(header)
