"""The attention models, Mamba, files that are no language models, and what all kinds share."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float32]

UNK, BOS, EOS = 0, 1, 2
N_SPECIAL = 3
N_PLAIN = 64
N_EMBD = 64
N_FF = 128
N_LAYER = 2
N_HEAD = 4
N_HEAD_KV = 2
HEAD_DIM = N_EMBD // N_HEAD
SWA_WINDOW = 32
D_CONV, D_INNER, D_STATE, DT_RANK = 4, 2 * N_EMBD, 16, N_EMBD // 16

FIRST_BYTE = N_SPECIAL
IM_START = FIRST_BYTE + 256
IM_END = IM_START + 1

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_WORDS = (
    *"▁abcdefghijklmnopqrstuvwxyz.,!?0123456789",
    *("▁a", "▁I", "▁the", "▁and", "▁is", "▁of", "th", "he", "in", "er", "an", "on", "ing"),
    *("▁he", "▁in", "▁to"),
)
_STEADY = 0  # the channel that every embedding holds at 1 and no layer writes to
_NEVER = -100.0  # output weight on that channel: the logit stays far below all others
_BUSY = 2.0  # how far layers outweigh the embedding: greedy text then depends on its history
_QUIET = 0.15  # the same for models that walk a cycle: the last token decides


def write_llama(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    noise_seed: int = 1,
    vocab: str = "plain",
    peaky: float = 2.0,
    ends: bool = False,
    cycle: bool = False,
    cycle_breaks: int = 0,
    n_ctx_train: int = 1024,
    extra_vocab_rows: int = 0,
    alter_token: Mapping[int, str] | None = None,
    eos_id: int | None = EOS,
    chat_template: str | None = CHATML,
    name: str = "tiny-llama",
) -> Path:
    """A llama model of 2 layers, width 64, F32; returns `path`.

    seed, noise, noise_seed: weights, plus `noise` standard deviations of each tensor.
    vocab: "plain", 64 tokens that cannot spell arbitrary text (use ids), or "bytes", which can
    (`chat_template` goes with it).
    peaky: standard deviation of the logits, about. ends: False keeps unknown, control and padding
    tokens from ever being predicted.
    cycle: greedy text follows `successors(seed, cycle_breaks, vocab)` by a wide margin, so a draft
    with breaks is refused at known tokens and nowhere else.
    extra_vocab_rows: padding tokens after the others, never predicted.
    alter_token: another text for an id.
    eos_id None: the file names no end-of-sequence token (llama.cpp then takes id 2).
    """
    w = _Random(seed, noise, noise_seed)
    writer = _writer(path, "llama", name, n_ctx_train)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_rope_dimension_count(HEAD_DIM)
    tokens = _add_vocab(writer, vocab, extra_vocab_rows, alter_token or {}, eos_id, chat_template)
    follow = successors(seed, cycle_breaks, vocab) if cycle else {}
    busy = _QUIET if cycle else _BUSY
    _add_ends(writer, w, tokens, extra_vocab_rows, peaky, ends, follow)
    for i in range(N_LAYER):
        _add_attention(writer, w, i, busy)
        _add_ffn(writer, w, i, busy)
    return finish(writer, path)


def successors(seed: int = 0, breaks: int = 0, vocab: str = "plain") -> dict[int, int]:
    """What follows each ordinary token in a `cycle` model; `breaks` tokens skip their successor."""
    first = N_SPECIAL if vocab == "plain" else IM_END + 1
    n = N_PLAIN if vocab == "plain" else first + len(_WORDS)
    order = np.random.default_rng(seed).permutation(np.arange(first, n)).tolist()
    return {
        token: order[(i + (2 if i < breaks else 1)) % len(order)] for i, token in enumerate(order)
    }


def write_mamba(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    noise_seed: int = 1,
    vocab: str = "plain",
    peaky: float = 2.0,
    ends: bool = False,
    n_ctx_train: int = 1024,
    name: str = "tiny-mamba",
) -> Path:
    """A recurrent model: its memory cannot be truncated. Arguments as in `write_llama`."""
    w = _Random(seed, noise, noise_seed)
    writer = _writer(path, "mamba", name, n_ctx_train)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    _add_mamba_sizes(writer)
    tokens = _add_vocab(writer, vocab, 0, {}, EOS, CHATML)
    _add_ends(writer, w, tokens, 0, peaky, ends)
    for i in range(N_LAYER):
        _add_mamba(writer, w, i)
    return finish(writer, path)


def write_gemma_swa(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    noise_seed: int = 1,
    vocab: str = "plain",
    peaky: float = 2.0,
    ends: bool = False,
    n_ctx_train: int = 1024,
    name: str = "tiny-gemma3",
) -> Path:
    """A gemma3 model whose first layer sees `SWA_WINDOW` tokens only, as in `write_llama`."""
    w = _Random(seed, noise, noise_seed)
    writer = _writer(path, "gemma3", name, n_ctx_train)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_sliding_window(SWA_WINDOW)
    writer.add_sliding_window_pattern(N_LAYER)
    tokens = _add_vocab(writer, vocab, 0, {}, EOS, CHATML)
    _add_ends(writer, w, tokens, 0, peaky, ends)
    for i in range(N_LAYER):
        _add_attention(writer, w, i)
        _add_ffn(writer, w, i)
        for norm in ("attn_q_norm", "attn_k_norm"):
            writer.add_tensor(f"blk.{i}.{norm}.weight", np.ones(HEAD_DIM, np.float32))
        for norm in ("post_attention_norm", "post_ffw_norm"):
            gain = np.full(N_EMBD, _BUSY * N_EMBD**0.5, np.float32)  # embeddings are scaled so
            gain[_STEADY] = 0.0
            writer.add_tensor(f"blk.{i}.{norm}.weight", gain)
    return finish(writer, path)


def write_projector(path: Path) -> Path:
    """A vision projector: a GGUF file that is no language model."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_name("tiny-projector")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_tensor("mm.0.weight", np.zeros((8, 8), np.float32))
    return finish(writer, path)


def write_adapter(path: Path) -> Path:
    """A LoRA adapter for a llama model: it cannot run alone."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_name("tiny-adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 16.0)
    writer.add_tensor("blk.0.attn_q.weight.lora_a", np.zeros((4, N_EMBD), np.float32))
    writer.add_tensor("blk.0.attn_q.weight.lora_b", np.zeros((N_EMBD, 4), np.float32))
    return finish(writer, path)


def write_bert(path: Path) -> Path:
    """The header of an embedding model: it cannot continue a text, and does not load."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_type("model")
    writer.add_name("tiny-bert")
    writer.add_context_length(512)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_causal_attention(False)
    writer.add_tokenizer_model("bert")
    writer.add_tensor("token_embd.weight", np.zeros((N_PLAIN, N_EMBD), np.float32))
    return finish(writer, path)


class _Random:
    """Weights by tensor name: the same seed gives the same tensor whatever else is written."""

    def __init__(self, seed: int, noise: float, noise_seed: int) -> None:
        self._seed, self._noise, self._noise_seed = seed, noise, noise_seed

    def __call__(self, name: str, shape: tuple[int, int], gain: float = 1.0) -> Weights:
        """shape: (outputs, inputs); the standard deviation keeps the size of a vector."""
        std = gain / shape[1] ** 0.5
        weights = _normal(self._seed, name, shape)
        weights += self._noise * _normal(self._noise_seed, f"noise {name}", shape)
        return (std * weights).astype(np.float32)


def _normal(seed: int, name: str, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    return np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape)


def _writer(path: Path, architecture: str, name: str, n_ctx_train: int) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(n_ctx_train)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_layer_norm_rms_eps(1e-5)
    return writer


def finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocab(
    writer: gguf.GGUFWriter,
    vocab: str,
    extra_vocab_rows: int,
    alter_token: Mapping[int, str],
    eos_id: int | None,
    chat_template: str | None,
) -> list[gguf.TokenType]:
    """A SentencePiece vocabulary; returns the type of each token."""
    kinds = gguf.TokenType
    texts = ["<unk>", "<s>", "</s>"]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL]
    if vocab == "plain":
        texts += [f"▁w{i}" for i in range(N_SPECIAL, N_PLAIN)]
    elif vocab == "bytes":
        texts += [f"<0x{byte:02X}>" for byte in range(256)]
        types += [kinds.BYTE] * 256
        texts += ["<|im_start|>", "<|im_end|>", *_WORDS]
        types += [kinds.CONTROL] * 2
    else:
        raise ValueError(f"vocab is {vocab!r}, not 'plain' or 'bytes'")
    types += [kinds.NORMAL] * (len(texts) - len(types))
    texts += [f"[PAD{len(texts) + i}]" for i in range(extra_vocab_rows)]
    types += [kinds.UNUSED] * extra_vocab_rows
    for token, text in alter_token.items():
        texts[token] = text
    # SentencePiece merges the best score first: longer pieces are better
    scores = [
        float(len(t)) if kind == kinds.NORMAL else 0.0 for t, kind in zip(texts, types, strict=True)
    ]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(UNK)
    writer.add_bos_token_id(BOS)
    if eos_id is not None:
        writer.add_eos_token_id(eos_id)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    if vocab == "bytes" and chat_template is not None:
        writer.add_chat_template(chat_template)
    return types


def _add_ends(
    writer: gguf.GGUFWriter,
    w: _Random,
    tokens: list[gguf.TokenType],
    extra_vocab_rows: int,
    peaky: float,
    ends: bool,
    follow: Mapping[int, int] | None = None,
    norm: str = "output_norm",
) -> None:
    """Embedding and output rows. Padding rows come last and leave the others unchanged."""
    n_used = len(tokens) - extra_vocab_rows
    embedding = np.zeros((len(tokens), N_EMBD), np.float32)
    embedding[:n_used] = w("token_embd.weight", (n_used, N_EMBD), N_EMBD**0.5)
    embedding[:, _STEADY] = 1.0
    output = np.zeros((len(tokens), N_EMBD), np.float32)
    output[:n_used] = w("output.weight", (n_used, N_EMBD), peaky / 2 if follow else peaky)
    if follow:
        walk = list(follow)
        # orthogonal embeddings: the rows that look for one token do not see the others
        u, _, v = np.linalg.svd(embedding[walk, _STEADY + 1 :], full_matrices=False)
        embedding[walk, _STEADY + 1 :] = N_EMBD**0.5 * (u @ v)
        for token in walk:
            output[follow[token]] += 10.0 * peaky / N_EMBD * embedding[token]
    output[:, _STEADY] = 0.0
    spoken = (gguf.TokenType.NORMAL, gguf.TokenType.BYTE)
    for token, kind in enumerate(tokens):
        if (kind not in spoken and not ends) or token >= n_used:
            output[token] = 0.0
            output[token, _STEADY] = _NEVER
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor(f"{norm}.weight", np.ones(N_EMBD, np.float32))
    writer.add_tensor("output.weight", output)


def _add_attention(writer: gguf.GGUFWriter, w: _Random, layer: int, busy: float = _BUSY) -> None:
    blk = f"blk.{layer}."
    n_kv = N_HEAD_KV * HEAD_DIM
    out = w(f"{blk}attn_output.weight", (N_EMBD, N_EMBD), busy)
    out[_STEADY] = 0.0
    writer.add_tensor(f"{blk}attn_norm.weight", np.ones(N_EMBD, np.float32))
    for tensor, shape, gain in (
        ("attn_q", (N_EMBD, N_EMBD), 2.0),
        ("attn_k", (n_kv, N_EMBD), 1.0),
        ("attn_v", (n_kv, N_EMBD), 1.0),
    ):
        writer.add_tensor(f"{blk}{tensor}.weight", w(f"{blk}{tensor}.weight", shape, gain))
    writer.add_tensor(f"{blk}attn_output.weight", out)


def _add_mamba_sizes(writer: gguf.GGUFWriter) -> None:
    writer.add_ssm_conv_kernel(D_CONV)
    writer.add_ssm_inner_size(D_INNER)
    writer.add_ssm_state_size(D_STATE)
    writer.add_ssm_time_step_rank(DT_RANK)


def _add_mamba(writer: gguf.GGUFWriter, w: _Random, layer: int) -> None:
    blk = f"blk.{layer}."
    out = w(f"{blk}ssm_out.weight", (N_EMBD, D_INNER), _BUSY)
    out[_STEADY] = 0.0
    writer.add_tensor(f"{blk}attn_norm.weight", np.ones(N_EMBD, np.float32))
    for tensor, shape in (("ssm_in", (2 * D_INNER, N_EMBD)), ("ssm_conv1d", (D_INNER, D_CONV))):
        writer.add_tensor(f"{blk}{tensor}.weight", w(f"{blk}{tensor}.weight", shape))
    writer.add_tensor(f"{blk}ssm_conv1d.bias", np.zeros(D_INNER, np.float32))
    for tensor, shape in (
        ("ssm_x", (DT_RANK + 2 * D_STATE, D_INNER)),
        ("ssm_dt", (D_INNER, DT_RANK)),
    ):
        writer.add_tensor(f"{blk}{tensor}.weight", w(f"{blk}{tensor}.weight", shape))
    decay = -np.tile(np.arange(1, D_STATE + 1, dtype=np.float32), (D_INNER, 1))
    writer.add_tensor(f"{blk}ssm_dt.bias", np.full(D_INNER, -3.0, np.float32))
    writer.add_tensor(f"{blk}ssm_a", decay)
    writer.add_tensor(f"{blk}ssm_d", np.ones(D_INNER, np.float32))
    writer.add_tensor(f"{blk}ssm_out.weight", out)


def _add_ffn(writer: gguf.GGUFWriter, w: _Random, layer: int, busy: float = _BUSY) -> None:
    blk = f"blk.{layer}."
    down = w(f"{blk}ffn_down.weight", (N_EMBD, N_FF), busy)
    down[_STEADY] = 0.0
    writer.add_tensor(f"{blk}ffn_norm.weight", np.ones(N_EMBD, np.float32))
    for tensor in ("ffn_gate", "ffn_up"):
        writer.add_tensor(
            f"{blk}{tensor}.weight", w(f"{blk}{tensor}.weight", (N_FF, N_EMBD), _BUSY)
        )
    writer.add_tensor(f"{blk}ffn_down.weight", down)
