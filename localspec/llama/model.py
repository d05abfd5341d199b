"""The weights of one GGUF file, loaded once. Knows nothing of caches or sampling."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.errors import InvalidOptionError, ModelFileError
from localspec.llama.native import init_backend, last_error
from localspec.llama.vocabulary import Vocabulary

__all__ = ["Model"]


class Model:
    """A loaded model; close it, or use it as a context manager.

    n_gpu_layers: layers put on the GPU, negative for all; 0 in a build without GPU support,
    whatever was asked. mmap: read the weights where they lie in the page cache; on a CPU it costs
    memory for those that are repacked. allocate False: the structure alone, without weights; such
    a model must not decode. Raises ModelFileError when llama.cpp cannot load the file; one that
    was not vetted (localspec.llama.probe) may end the process.
    """

    def __init__(
        self,
        path: Path,
        *,
        n_gpu_layers: int = -1,
        main_gpu: int = 0,
        tensor_split: Sequence[float] | None = None,
        mmap: bool = False,
        allocate: bool = True,
    ) -> None:
        init_backend()
        self.path = path
        params = llama_cpp.llama_model_default_params()
        offload = bool(llama_cpp.llama_supports_gpu_offload())
        params.n_gpu_layers = n_gpu_layers if offload else 0
        params.main_gpu = main_gpu
        params.no_alloc = not allocate
        if not params.n_gpu_layers and not (mmap and allocate):
            # mmap counts repacked weights twice: once in the page cache, once as used.
            params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        self._tensor_split = _tensor_split(tensor_split)  # llama.cpp keeps a pointer to it
        if self._tensor_split is not None:
            params.tensor_split = self._tensor_split
        last_error()
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            raise ModelFileError(
                f"llama.cpp could not load {path}: {last_error() or 'no reason given'}. "
                "The file may be damaged, of an architecture this build does not know, or too "
                "large for the memory that is free"
            )
        self.vocabulary = Vocabulary(llama_cpp.llama_model_get_vocab(self._model))
        self.n_gpu_layers = self._layers_offloaded(int(params.n_gpu_layers))

    @property
    def handle(self) -> Any:
        """The native pointer, for localspec.llama alone."""
        if self._model is None:
            raise ModelFileError(f"{self.path.name} was closed")
        return self._model

    @functools.cached_property
    def n_ctx_train(self) -> int:
        """The context length, in tokens, that the model was trained for."""
        return int(llama_cpp.llama_model_n_ctx_train(self.handle))

    @functools.cached_property
    def description(self) -> str:
        """Architecture, size and quant in llama.cpp's words, such as `qwen2 1.5B Q4_K - Medium`."""
        buffer = ctypes.create_string_buffer(256)
        llama_cpp.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @functools.cached_property
    def is_recurrent(self) -> bool:
        """True when the memory, or a part of it, is a state that cannot be cut back."""
        return bool(
            llama_cpp.llama_model_is_recurrent(self.handle)
            or llama_cpp.llama_model_is_hybrid(self.handle)
        )

    @functools.cached_property
    def n_swa(self) -> int:
        """Tokens that a layer with a sliding window sees; 0 without such layers."""
        return int(llama_cpp.llama_model_n_swa(self.handle))

    @functools.cached_property
    def chat_template(self) -> str | None:
        """The Jinja source that the file carries."""
        found = llama_cpp.llama_model_chat_template(self.handle, None)
        return found.decode("utf-8", "replace") if found else None

    def close(self) -> None:
        """Free the weights. Contexts over the model must be closed first."""
        if self._model is not None:
            self.vocabulary.close()
            llama_cpp.llama_model_free(self._model)
            self._model = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _layers_offloaded(self, asked: int) -> int:
        n_layers = int(llama_cpp.llama_model_n_layer(self.handle)) + 1  # and the output layer
        return n_layers if asked < 0 else min(asked, n_layers)


def _tensor_split(shares: Sequence[float] | None) -> Any:
    if not shares:
        return None
    n = int(llama_cpp.llama_max_devices())
    if len(shares) > n or any(share < 0 for share in shares):
        raise InvalidOptionError(
            f"tensor_split takes up to {n} shares of 0 or more, one for each GPU; got {shares}"
        )
    return (ctypes.c_float * n)(*shares)
