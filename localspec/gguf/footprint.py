"""What a model needs in memory, from its header alone: weights, cache, buffers.

Weights and caches are exact for the architectures of llama.cpp that keep plain K/V or recurrent
states (src/llama-kv-cache.cpp, src/llama-memory-recurrent.cpp); the buffers of a decode are an
estimate, on the large side. Sliding windows are priced at full size, as they are loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from localspec.gguf.header import GGUFHeader
from localspec.gguf.hyperparameters import Hyperparameters
from localspec.gguf.parser import Array
from localspec.gguf.types import row_bytes

__all__ = ["Footprint", "Setting", "footprint"]

_LAYER = re.compile(r"blk\.(\d+)\.")
_F32 = 4
_ACTIVATIONS = 3  # tensors of a layer's width that are alive at once


@dataclass(frozen=True, slots=True)
class Setting:
    """How a context is made. n_ctx, n_batch, n_rows (of logits returned) in tokens."""

    n_ctx: int
    n_batch: int
    n_rows: int
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: bool = True


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes. layers: weights of each repeating layer; cache_layers: K/V or state of each.

    input: weights that stay on the CPU (token embeddings); output: those behind the last layer.
    """

    layers: tuple[int, ...]
    cache_layers: tuple[int, ...]
    input: int
    output: int
    buffers: int

    @property
    def weights(self) -> int:
        """All weights."""
        return sum(self.layers) + self.input + self.output

    @property
    def cache(self) -> int:
        """K/V and recurrent states of all layers."""
        return sum(self.cache_layers)

    @property
    def total(self) -> int:
        """Everything."""
        return self.weights + self.cache + self.buffers


def footprint(header: GGUFHeader, setting: Setting) -> Footprint:
    """Price a language model. Raises KeyError for an unknown cache type."""
    sizes = Hyperparameters(header)
    n_layers = sizes.n_layers
    layers = [0] * n_layers
    rest = {"token_embd.weight": 0, "output.weight": 0}
    for tensor in header.tensors:
        found = _LAYER.match(tensor.name)
        size = tensor.size_bytes or 0
        if found and int(found[1]) < n_layers:
            layers[int(found[1])] += size
        else:
            rest[tensor.name] = size
    embedding = rest.pop("token_embd.weight")
    output = sum(rest.values())
    if not rest["output.weight"]:
        output += embedding  # tied: the output has a copy of its own, laid out for products
    n_ctx = -(-setting.n_ctx // 256) * 256
    names = {tensor.name for tensor in header.tensors}
    cache = tuple(_cache(sizes, i, n_ctx, setting, names) for i in range(n_layers))
    return Footprint(tuple(layers), cache, embedding, output, _buffers(sizes, n_ctx, setting))


def _cache(
    sizes: Hyperparameters, layer: int, n_ctx: int, setting: Setting, names: set[str]
) -> int:
    blk = f"blk.{layer}."
    is_recurrent = any(f"{blk}{name}" in names for name in _RECURRENT)
    total = _state(sizes) if is_recurrent else 0
    has_keys = f"{blk}attn_k.weight" in names
    if has_keys or (not is_recurrent and any(f"{blk}{name}" in names for name in _FUSED)):
        n_owners = sizes.n_layers - sizes.whole("attention.shared_kv_layers")
        if layer < n_owners:
            total += n_ctx * _token_bytes(sizes, layer, setting)
    return total


_RECURRENT = ("ssm_in.weight", "ssm_out.weight", "ssm_conv1d.weight", "shortconv.conv.weight",
              "time_mix_key.weight")  # fmt: skip
_FUSED = ("attn_qkv.weight", "attn_kv_a_mqa.weight", "attn_kv_b.weight")


def _token_bytes(sizes: Hyperparameters, layer: int, setting: Setting) -> int:
    n_heads = sizes.n_heads_kv[layer]
    key, value = sizes.key_length, sizes.value_length
    if _slides(sizes, layer):
        key = sizes.whole("attention.key_length_swa", key)
        value = sizes.whole("attention.value_length_swa", value)
    bytes_k = row_bytes(setting.type_k, n_heads * key)
    if sizes.whole("attention.key_length_mla"):
        return bytes_k  # latent attention: the values are a part of the keys
    return bytes_k + row_bytes(setting.type_v, n_heads * value)


def _slides(sizes: Hyperparameters, layer: int) -> bool:
    pattern = sizes.value("attention.sliding_window_pattern")
    if isinstance(pattern, Array) and pattern.values and layer < len(pattern.values):
        return bool(pattern.values[layer])
    return False


def _state(sizes: Hyperparameters) -> int:
    """The recurrent state of one layer; src/llama-hparams.cpp, n_embd_r and n_embd_s."""
    n_embd = sizes.n_embd
    head = sizes.whole("wkv.head_size")
    if head:
        return _F32 * n_embd * (sizes.whole("token_shift_count", 2) + head)
    short = sizes.whole("shortconv.l_cache")
    if short:
        return _F32 * n_embd * (short - 1)
    inner, state = sizes.whole("ssm.inner_size"), sizes.whole("ssm.state_size")
    convolved = inner + 2 * sizes.whole("ssm.group_count") * state
    return _F32 * (max(0, sizes.whole("ssm.conv_kernel") - 1) * convolved + inner * state)


def _buffers(sizes: Hyperparameters, n_ctx: int, setting: Setting) -> int:
    n_batch = min(setting.n_batch, n_ctx)
    n_heads = max(sizes.n_heads, default=0)
    widest = max(
        sizes.whole("feed_forward_length"),
        sizes.whole("ssm.inner_size") * 2,
        n_heads * max(sizes.key_length, sizes.value_length),
        sizes.n_embd,
    )
    activations = _F32 * n_batch * (_ACTIVATIONS * widest + 4 * sizes.n_embd)
    per_pair = 6 if setting.flash_attn else 6 + _F32 * n_heads  # masks; without it, scores too
    logits = _F32 * 2 * min(setting.n_rows, n_batch) * sizes.header.n_vocab
    return activations + n_batch * n_ctx * per_pair + logits
