"""Other kinds of memory: hybrids of attention and recurrent layers, RWKV, mixtures of experts.

Arguments as in `write_llama`. Layer 0 of a hybrid is recurrent, layer 1 attends.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.tiny_models.common import (
    _BUSY,
    _STEADY,
    CHATML,
    D_STATE,
    DT_RANK,
    EOS,
    HEAD_DIM,
    N_EMBD,
    N_FF,
    N_HEAD,
    N_HEAD_KV,
    N_LAYER,
    _add_attention,
    _add_ends,
    _add_ffn,
    _add_mamba,
    _add_mamba_sizes,
    _add_vocab,
    _Random,
    _writer,
    finish,
)

__all__ = ["write_jamba", "write_lfm2", "write_moe", "write_rwkv7"]

N_EXPERT, N_EXPERT_USED = 4, 2
L_CACHE = 3
WKV_HEAD = 16
LORA = 8


def write_jamba(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    noise_seed: int = 1,
    vocab: str = "plain",
    peaky: float = 2.0,
    ends: bool = False,
    n_ctx_train: int = 1024,
    name: str = "tiny-jamba",
) -> Path:
    """A hybrid: Mamba below, attention above."""
    w = _Random(seed, noise, noise_seed)
    writer = _writer(path, "jamba", name, n_ctx_train)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv([0, N_HEAD_KV])
    _add_mamba_sizes(writer)
    tokens = _add_vocab(writer, vocab, 0, {}, EOS, CHATML)
    _add_ends(writer, w, tokens, 0, peaky, ends)
    _add_mamba(writer, w, 0)
    for norm, size in (("dt", DT_RANK), ("b", D_STATE), ("c", D_STATE)):
        writer.add_tensor(f"blk.0.ssm_{norm}_norm.weight", np.ones(size, np.float32))
    _add_attention(writer, w, 1)
    for i in range(N_LAYER):
        _add_ffn(writer, w, i)
    return finish(writer, path)


def write_lfm2(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    noise_seed: int = 1,
    vocab: str = "plain",
    peaky: float = 2.0,
    ends: bool = False,
    n_ctx_train: int = 1024,
    name: str = "tiny-lfm2",
) -> Path:
    """A hybrid: short convolution below, attention above."""
    w = _Random(seed, noise, noise_seed)
    writer = _writer(path, "lfm2", name, n_ctx_train)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv([0, N_HEAD_KV])
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_shortconv_l_cache(L_CACHE)
    tokens = _add_vocab(writer, vocab, 0, {}, EOS, CHATML)
    _add_ends(writer, w, tokens, 0, peaky, ends, norm="token_embd_norm")
    conv = "blk.0.shortconv"
    out = w(f"{conv}.out_proj.weight", (N_EMBD, N_EMBD), _BUSY)
    out[_STEADY] = 0.0
    writer.add_tensor("blk.0.attn_norm.weight", np.ones(N_EMBD, np.float32))
    writer.add_tensor(f"{conv}.conv.weight", w(f"{conv}.conv.weight", (N_EMBD, L_CACHE)))
    writer.add_tensor(f"{conv}.in_proj.weight", w(f"{conv}.in_proj.weight", (3 * N_EMBD, N_EMBD)))
    writer.add_tensor(f"{conv}.out_proj.weight", out)
    _add_attention(writer, w, 1)
    for norm in ("attn_q_norm", "attn_k_norm"):
        writer.add_tensor(f"blk.1.{norm}.weight", np.ones(HEAD_DIM, np.float32))
    for i in range(N_LAYER):
        _add_ffn(writer, w, i)
    return finish(writer, path)


def write_moe(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    noise_seed: int = 1,
    vocab: str = "plain",
    peaky: float = 2.0,
    ends: bool = False,
    n_ctx_train: int = 1024,
    name: str = "tiny-moe",
) -> Path:
    """A llama model with four experts in each layer, two of which are used for a token."""
    w = _Random(seed, noise, noise_seed)
    writer = _writer(path, "llama", name, n_ctx_train)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_expert_count(N_EXPERT)
    writer.add_expert_used_count(N_EXPERT_USED)
    tokens = _add_vocab(writer, vocab, 0, {}, EOS, CHATML)
    _add_ends(writer, w, tokens, 0, peaky, ends)
    for i in range(N_LAYER):
        _add_attention(writer, w, i)
        _add_experts(writer, w, i)
    return finish(writer, path)


def write_rwkv7(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    noise_seed: int = 1,
    vocab: str = "plain",
    peaky: float = 2.0,
    ends: bool = False,
    n_ctx_train: int = 1024,
    name: str = "tiny-rwkv7",
) -> Path:
    """A recurrent model of another family than Mamba."""
    w = _Random(seed, noise, noise_seed)
    writer = _writer(path, "rwkv7", name, n_ctx_train)
    writer.add_layer_norm_eps(1e-5)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(0)
    writer.add_wkv_head_size(WKV_HEAD)
    writer.add_token_shift_count(2)
    writer.add_decay_lora_rank(LORA)
    writer.add_iclr_lora_rank(LORA)
    writer.add_value_residual_mix_lora_rank(LORA)
    writer.add_gate_lora_rank(LORA)
    tokens = _add_vocab(writer, vocab, 0, {}, EOS, CHATML)
    _add_ends(writer, w, tokens, 0, peaky, ends)
    _add_layer_norm(writer, "token_embd_norm")
    # the last norm takes the mean away: its bias keeps the steady channel up
    bias = np.zeros(N_EMBD, np.float32)
    bias[_STEADY] = 4.0
    writer.add_tensor("output_norm.bias", bias)
    for i in range(N_LAYER):
        _add_rwkv(writer, w, i)
    return finish(writer, path)


def _add_layer_norm(writer: gguf.GGUFWriter, name: str) -> None:
    writer.add_tensor(f"{name}.weight", np.ones(N_EMBD, np.float32))
    writer.add_tensor(f"{name}.bias", np.zeros(N_EMBD, np.float32))


def _add_rwkv(writer: gguf.GGUFWriter, w: _Random, layer: int) -> None:
    blk = f"blk.{layer}."
    for norm in ("attn_norm", "attn_norm_2", "time_mix_ln"):
        _add_layer_norm(writer, blk + norm)
    for name in "wavg":
        writer.add_tensor(
            f"{blk}time_mix_{name}1.weight", w(f"{blk}time_mix_{name}1", (LORA, N_EMBD))
        )
        writer.add_tensor(
            f"{blk}time_mix_{name}2.weight", w(f"{blk}time_mix_{name}2", (N_EMBD, LORA))
        )
        if name != "g":
            writer.add_tensor(f"{blk}time_mix_{name}0.weight", np.zeros(N_EMBD, np.float32))
    half = np.full((6, 1, 1, N_EMBD), 0.5, np.float32)
    writer.add_tensor(f"{blk}time_mix_lerp_fused.weight", half)
    for name in ("k_k", "k_a", "r_k"):
        writer.add_tensor(f"{blk}time_mix_{name}.weight", np.full(N_EMBD, 0.5, np.float32))
    for name in ("key", "value", "receptance"):
        tensor = f"{blk}time_mix_{name}.weight"
        writer.add_tensor(tensor, w(tensor, (N_EMBD, N_EMBD)))
    writer.add_tensor(
        f"{blk}time_mix_output.weight", w(f"{blk}time_mix_output", (N_EMBD, N_EMBD), _BUSY)
    )
    writer.add_tensor(f"{blk}channel_mix_lerp_k.weight", np.full((1, 1, N_EMBD), 0.5, np.float32))
    writer.add_tensor(f"{blk}channel_mix_key.weight", w(f"{blk}channel_mix_key", (N_FF, N_EMBD)))
    writer.add_tensor(
        f"{blk}channel_mix_value.weight", w(f"{blk}channel_mix_value", (N_EMBD, N_FF))
    )


def _add_experts(writer: gguf.GGUFWriter, w: _Random, layer: int) -> None:
    blk = f"blk.{layer}."
    writer.add_tensor(f"{blk}ffn_norm.weight", np.ones(N_EMBD, np.float32))
    gate = f"{blk}ffn_gate_inp.weight"
    writer.add_tensor(gate, w(gate, (N_EXPERT, N_EMBD), _BUSY))
    for name, shape in (
        ("ffn_gate_exps", (N_FF, N_EMBD)),
        ("ffn_up_exps", (N_FF, N_EMBD)),
        ("ffn_down_exps", (N_EMBD, N_FF)),
    ):
        experts = np.stack([w(f"{blk}{name}.{i}", shape, _BUSY) for i in range(N_EXPERT)])
        if name == "ffn_down_exps":
            experts[:, _STEADY] = 0.0
        writer.add_tensor(f"{blk}{name}.weight", experts)
