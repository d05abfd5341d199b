"""Which architectures this build of llama.cpp knows.

It exports no list. A file of 100 bytes that names one and nothing else is refused before anything
is allocated, and the reason tells: an unknown architecture, or a missing tokenizer.
"""

from __future__ import annotations

import functools
import os
import struct
import tempfile

import llama_cpp

from localspec.llama.native import init_backend, last_error

__all__ = ["knows_architecture"]

_KEY = b"general.architecture"
_UNKNOWN = "unknown model architecture"  # src/llama-model.cpp, llama_model_create


@functools.cache
def knows_architecture(name: str) -> bool:
    """False only when llama.cpp says that it does not know `name`."""
    init_backend()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    params.n_gpu_layers = 0
    text = name.encode("utf-8", "replace")
    try:
        with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
            path = os.path.join(folder, "a.gguf")
            with open(path, "wb") as file:
                file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1))
                file.write(struct.pack("<Q", len(_KEY)) + _KEY)
                file.write(struct.pack("<IQ", 8, len(text)) + text)
            last_error()
            model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
    except OSError:  # no folder for temporary files: the load itself will tell
        return True
    if model:
        llama_cpp.llama_model_free(model)
        return True
    return _UNKNOWN not in last_error()
