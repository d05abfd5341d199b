"""The sizes that shape a model, as its metadata states them, and whether they can be true.

llama.cpp asserts some of them, which ends the process, divides by others and allocates by others
(src/llama-model.cpp, load_hparams; src/llama-hparams.h): here they become named errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from localspec.errors import ModelFileError
from localspec.gguf.header import GGUFHeader
from localspec.gguf.parser import Array

__all__ = ["Hyperparameters", "check_hyperparameters"]

_MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
_MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS
_MAX_WIDTH = 1 << 22
_MAX_CONTEXT = 1 << 31
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_NOT_NEGATIVE = (
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.group_norm_epsilon",
    "attention.max_alibi_bias",
)
_POSITIVE = ("rope.freq_base", "rope.freq_base_swa")
_FINITE = ("rope.scaling.factor", "rope.scale_linear", "logit_scale", "attention.scale",
           "final_logit_softcapping", "attn_logit_softcapping")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Typed reading of the metadata below the architecture's name.

    Numbers of a wrong type read as absent: what is required is checked by check_hyperparameters.
    """

    header: GGUFHeader

    def value(self, key: str) -> Any:
        """A scalar or an Array, None where the file does not say."""
        return self.header.metadata.get(f"{self.header.architecture}.{key}")

    def whole(self, key: str, default: int = 0) -> int:
        """A whole number; of an array its largest element."""
        found = self.value(key)
        if isinstance(found, Array):
            numbers = [n for n in found.values or () if _is_whole(n)]
            return max(numbers, default=default)
        return int(found) if _is_whole(found) else default

    def per_layer(self, key: str, default: int = 0) -> tuple[int, ...]:
        """One whole number for each layer; a scalar is repeated."""
        found = self.value(key)
        if isinstance(found, Array) and found.values is not None:
            numbers = [int(n) if _is_whole(n) else default for n in found.values]
            return tuple((numbers + [default] * self.n_layers)[: self.n_layers])
        return (self.whole(key, default),) * self.n_layers

    @property
    def n_layers(self) -> int:
        """Layers (blocks), at most what llama.cpp allows."""
        return min(self.whole("block_count"), _MAX_LAYERS)

    @property
    def n_embd(self) -> int:
        """Width of the residual stream."""
        return self.whole("embedding_length")

    @property
    def n_heads(self) -> tuple[int, ...]:
        """Attention heads of each layer; 0 where a layer has none."""
        return self.per_layer("attention.head_count")

    @property
    def n_heads_kv(self) -> tuple[int, ...]:
        """K/V heads of each layer; as many as heads where the file does not say."""
        if self.value("attention.head_count_kv") is None:
            return self.n_heads
        return self.per_layer("attention.head_count_kv")

    @property
    def key_length(self) -> int:
        """Width of one K head."""
        return self.whole("attention.key_length", self._head_width())

    @property
    def value_length(self) -> int:
        """Width of one V head."""
        return self.whole("attention.value_length", self._head_width())

    def _head_width(self) -> int:
        first = next(filter(None, self.n_heads), 0)
        return self.n_embd // first if first else 0


def check_hyperparameters(header: GGUFHeader) -> None:
    """Raise ModelFileError for sizes that cannot be true; the header is a language model's."""
    sizes = Hyperparameters(header)
    for check in (_layers, _heads, _experts, _rope, _reals):
        reason = check(sizes)
        if reason:
            raise ModelFileError(
                f"{header.path} is damaged or was converted wrongly: {reason}. Fetch it again, or "
                "from another source"
            )


def _layers(sizes: Hyperparameters) -> str | None:
    for key, most in (
        ("block_count", _MAX_LAYERS),
        ("embedding_length", _MAX_WIDTH),
        ("context_length", _MAX_CONTEXT),
    ):
        found = sizes.value(key)
        if not _is_whole(found) or not 0 < found <= most:
            said = "is not stated" if found is None else f"is {_said(found)}"
            return f"its {key} {said}, and must be a whole number from 1 to {most:,}"
    if sizes.whole("feed_forward_length") > _MAX_WIDTH:
        return f"its feed_forward_length is {sizes.whole('feed_forward_length'):,}"
    if sizes.whole("nextn_predict_layers") > sizes.n_layers:
        return (
            f"it claims {sizes.whole('nextn_predict_layers'):,} of {sizes.n_layers} layers for MTP"
        )
    for key in ("feed_forward_length", "attention.head_count", "attention.head_count_kv"):
        found = sizes.value(key)
        if isinstance(found, Array) and found.length != sizes.n_layers:
            return f"its {key} lists {found.length} layers of {sizes.n_layers}"
    return None


def _heads(sizes: Hyperparameters) -> str | None:
    for i, (n, n_kv) in enumerate(zip(sizes.n_heads, sizes.n_heads_kv, strict=True)):
        if n < 0 or n_kv < 0 or n > _MAX_WIDTH or (n_kv and n % n_kv):
            return f"layer {i} has {n:,} attention heads for {n_kv:,} K/V heads"
    if any(sizes.n_heads) and not (0 < sizes.key_length <= _MAX_WIDTH):
        return f"its attention heads are {sizes.key_length:,} wide"
    if any(sizes.n_heads) and not (0 <= sizes.value_length <= _MAX_WIDTH):
        return f"its values are {sizes.value_length:,} wide"
    has_attention = any(
        tensor.name.endswith((".attn_q.weight", ".attn_qkv.weight"))
        for tensor in sizes.header.tensors
    )
    if has_attention and not any(sizes.n_heads):
        return "it has attention layers and states no attention.head_count"
    return None


def _experts(sizes: Hyperparameters) -> str | None:
    n, n_used = sizes.whole("expert_count"), sizes.whole("expert_used_count")
    n_groups, n_groups_used = (
        sizes.whole("expert_group_count"),
        sizes.whole("expert_group_used_count"),
    )
    if not 0 <= n <= _MAX_EXPERTS:
        return f"its expert_count is {n:,}, and llama.cpp allows {_MAX_EXPERTS:,}"
    if n > 1 and not 0 < n_used <= n:
        return f"it uses {n_used:,} of {n:,} experts"
    if n == 0 and (n_used or n_groups):
        return f"it uses {n_used:,} experts in {n_groups:,} groups and has none"
    if n_groups > 1 and (n % n_groups or n_groups >= n or not 0 < n_groups_used < n_groups):
        return f"it uses {n_groups_used:,} of {n_groups:,} groups of its {n:,} experts"
    return None


def _rope(sizes: Hyperparameters) -> str | None:
    scaling = sizes.value("rope.scaling.type")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALINGS:
        return f"its rope.scaling.type is {scaling[:40]!r}, not one of {', '.join(_ROPE_SCALINGS)}"
    n_rot = sizes.whole("rope.dimension_count")
    if n_rot < 0 or n_rot % 2 or (any(sizes.n_heads) and n_rot > _widest_key(sizes)):
        return f"it turns {n_rot:,} of {_widest_key(sizes):,} dimensions of a head"
    return None


def _reals(sizes: Hyperparameters) -> str | None:
    for keys, allowed, words in (
        (_NOT_NEGATIVE, lambda x: x >= 0, "0 or more"),
        (_POSITIVE, lambda x: x > 0, "above 0"),
        (_FINITE, lambda x: True, "a finite number"),
    ):
        for key in keys:
            found = sizes.value(key)
            if isinstance(found, float) and not (math.isfinite(found) and allowed(found)):
                return f"its {key} is {found}, and must be {words}"
    return None


def _widest_key(sizes: Hyperparameters) -> int:
    return max(
        sizes.key_length,
        sizes.whole("attention.key_length_mla"),
        sizes.whole("attention.key_length_swa"),
    )


def _is_whole(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool)


def _said(found: Any) -> str:
    if isinstance(found, Array):
        return f"an array of {found.length:,}"
    return f"{found:,}" if isinstance(found, int) else repr(found)[:40]
