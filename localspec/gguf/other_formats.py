"""What a file is that was given for a GGUF and is none, told by its first bytes."""

from __future__ import annotations

import re

__all__ = ["describe"]

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
