"""Tiny GGUF models with random weights: they load at once and obey the same laws as large ones.

A draft is the same seed with noise on the weights, so that it agrees with its target now and then.
Knows the file format only; whether llama.cpp loads the files is tests/unit/test_tiny_models.py.
"""

from tests.tiny_models.common import (
    BOS,
    CHATML,
    EOS,
    FIRST_BYTE,
    IM_END,
    IM_START,
    N_LAYER,
    N_PLAIN,
    N_SPECIAL,
    SWA_WINDOW,
    UNK,
    finish,
    successors,
    write_adapter,
    write_bert,
    write_gemma_swa,
    write_llama,
    write_mamba,
    write_projector,
)
from tests.tiny_models.kinds import write_jamba, write_lfm2, write_moe, write_rwkv7

__all__ = [
    "BOS",
    "CHATML",
    "EOS",
    "FIRST_BYTE",
    "IM_END",
    "IM_START",
    "N_LAYER",
    "N_PLAIN",
    "N_SPECIAL",
    "SWA_WINDOW",
    "UNK",
    "finish",
    "successors",
    "write_adapter",
    "write_bert",
    "write_gemma_swa",
    "write_jamba",
    "write_lfm2",
    "write_llama",
    "write_mamba",
    "write_moe",
    "write_projector",
    "write_rwkv7",
]
