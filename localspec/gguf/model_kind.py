"""What kind of model a GGUF file holds, and whether that kind can write text."""

from __future__ import annotations

from localspec.errors import ModelKindError
from localspec.gguf.header import GGUFHeader

__all__ = ["LANGUAGE_MODEL", "kind_of", "require_language_model"]

LANGUAGE_MODEL = "language model"
_ADVICE = {
    "vision projector": "Give the language model that it belongs to",
    "LoRA adapter": "A LoRA needs its base model: give that file",
    "control vector": "Give the model that it steers",
    "importance matrix": "Give the model that it was measured on",
    "embedding model": "Give a model that generates text",
    "reranker": "Give a model that generates text",
    "speech model": "Give a model that generates text",
    "draft head": "It works inside its own target alone: give a whole model, or `--drafter ngram`",
    "encoder-decoder model": "Give a decoder-only model, such as Llama, Qwen or Gemma",
    "diffusion model": "Give a model that writes one token after another",
    "vocabulary without weights": "Give the model file itself",
    "model without a vocabulary": "Convert it again with its tokenizer",
    "GGUF file that names no architecture": "Convert the model again, or fetch another file",
}

# llama.cpp, src/llama-arch.cpp; what is in none of them may be a language model
_KINDS = {
    "vision projector": ("clip",),
    "control vector": ("controlvector",),
    "embedding model": (
        "bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3",
        "modern-bert", "eurobert", "t5encoder", "gemma-embedding", "llama-embed",
    ),
    "encoder-decoder model": ("t5",),
    "diffusion model": ("dream", "llada", "llada-moe", "rnd1"),
    "speech model": ("wavtokenizer-dec", "qwen3tts", "pockettts"),
    "draft head": ("eagle3", "dflash", "gemma4-assistant"),
}  # fmt: skip
_BY_TYPE = {
    "mmproj": "vision projector",
    "adapter": "LoRA adapter",
    "imatrix": "importance matrix",
}
_POOLING_RANK = 4  # llama.h, LLAMA_POOLING_TYPE_RANK


def kind_of(header: GGUFHeader) -> str:
    """Such as `language model`, `vision projector`, `LoRA adapter`, `embedding model`."""
    architecture = header.architecture
    declared = header.metadata.get("general.type")
    if isinstance(declared, str) and declared in _BY_TYPE:
        return _BY_TYPE[declared]
    for kind, architectures in _KINDS.items():
        if architecture in architectures:
            return kind
    if header.metadata.get(f"{architecture}.attention.causal", True) is False:
        return "embedding model"
    if header.metadata.get(f"{architecture}.pooling_type") == _POOLING_RANK:
        return "reranker"
    if not architecture:
        return "GGUF file that names no architecture"
    if not header.tensors:
        return "vocabulary without weights"
    return LANGUAGE_MODEL if header.n_vocab else "model without a vocabulary"


def require_language_model(header: GGUFHeader, role: str) -> None:
    """Raise ModelKindError unless the file can write text; `role` is target or draft."""
    kind = kind_of(header)
    if kind == LANGUAGE_MODEL:
        return
    article = "an" if kind[0] in "aeiou" else "a"
    raise ModelKindError(
        f"{header.path} cannot be the {role}: it is {article} {kind}. {_ADVICE[kind]}"
    )
