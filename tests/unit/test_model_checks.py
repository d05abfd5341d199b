"""What would end the process inside llama.cpp is named before llama.cpp sees it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.errors import ModelFileError, ModelKindError
from localspec.gguf.header import read_header
from localspec.gguf.model_checks import check_model
from localspec.gguf.model_kind import require_language_model
from tests import tiny_models
from tests.gguf_edit import edit


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.write_llama(tmp_path / "m.gguf", vocab="bytes")


def check(path: Path) -> None:
    header = read_header(path)
    require_language_model(header, "target")
    check_model(header)


@pytest.mark.parametrize(
    "write",
    [
        tiny_models.write_llama,
        tiny_models.write_mamba,
        tiny_models.write_gemma_swa,
        lambda path: tiny_models.write_llama(path, vocab="bytes", extra_vocab_rows=8),
        lambda path: tiny_models.write_llama(path, eos_id=None),
    ],
)
def test_sound_models_pass(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    check(write(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("llama.block_count", 0, "block_count is 0"),
        ("llama.block_count", 513, "block_count is 513"),
        ("llama.embedding_length", 0, "embedding_length is 0"),
        ("llama.context_length", 0, "context_length is 0"),
        ("llama.attention.head_count", 0, "states no attention.head_count"),
        ("llama.attention.head_count", 3, "3 attention heads for 2 K/V heads"),
        ("llama.attention.head_count", 1 << 31, "attention heads"),
        ("llama.feed_forward_length", 1 << 31, "feed_forward_length is 2,147,483,648"),
        ("llama.rope.dimension_count", 512, "turns 512 of 16 dimensions"),
        ("llama.rope.dimension_count", 15, "turns 15 of 16"),
        ("llama.attention.layer_norm_rms_epsilon", -1.0, "epsilon is -1.0, and must be 0 or more"),
        ("llama.attention.layer_norm_rms_epsilon", math.nan, "epsilon is nan"),
        ("tokenizer.ggml.eos_token_id", 5000, "eos_token_id is 5,000, and the ids go from 0 to"),
        ("tokenizer.ggml.bos_token_id", 316 + 99, "bos_token_id is"),
    ],
)
def test_sizes_that_cannot_be_true(model: Path, name: str, value: float, complaint: str) -> None:
    with pytest.raises(ModelFileError, match=complaint):
        check(edit(model, name, value))


def test_no_such_token_is_said_with_the_largest_number(model: Path) -> None:
    check(edit(model, "tokenizer.ggml.bos_token_id", 0xFFFFFFFF))


def test_two_tokens_of_one_spelling(tmp_path: Path) -> None:
    """llama.cpp asserts that there are none (llama-vocab.cpp), which ends the process."""
    path = tiny_models.write_llama(tmp_path / "m.gguf", alter_token={9: "▁w7"})
    with pytest.raises(ModelFileError, match="tokens 7 and 9 are both spelled '▁w7'"):
        check(path)


def test_empty_tokens_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    check(tiny_models.write_llama(tmp_path / "m.gguf", alter_token={9: "", 12: ""}))
    spelled = {9: "", 12: "[EMPTY_9]"}  # the name that llama.cpp gives to the first
    with pytest.raises(ModelFileError, match="tokens 9 and 12"):
        check(tiny_models.write_llama(tmp_path / "m.gguf", alter_token=spelled))


def test_fewer_rows_than_tokens(model: Path) -> None:
    """The embedding of the last tokens would be read behind its end."""
    rows = edit(model, "dimension 1 of token_embd.weight", 300)
    with pytest.raises(ModelFileError, match="damaged"):  # the next tensor no longer follows
        check(rows)


def write_vocabulary(path: Path, **parts: object) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {
        "block_count": 1, "embedding_length": 8, "context_length": 64, "attention.head_count": 1,
    }.items():  # fmt: skip
        writer.add_uint32(f"llama.{key}", value)
    writer.add_tokenizer_model(str(parts.get("model", "llama")))
    writer.add_token_list(["a", "b", "c"])
    if "scores" in parts:
        writer.add_token_scores(parts["scores"])  # type: ignore[arg-type]
    if "types" in parts:
        writer.add_token_types(parts["types"])  # type: ignore[arg-type]
    writer.add_tensor(
        "token_embd.weight", np.zeros((int(str(parts.get("rows", 3))), 8), np.float32)
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"scores": [0.0, 1.0]}, "scores has 2 entries for 3 tokens"),
        ({"types": [1, 1]}, "token_type has 2 entries for 3 tokens"),
        ({"rows": 5}, "3 tokens, and the weights have 5 rows"),
        ({"model": "gpt2"}, "of the gpt2 kind and has no merges"),
    ],
)
def test_a_vocabulary_that_contradicts_itself(
    tmp_path: Path, parts: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ModelFileError, match=complaint):
        check(write_vocabulary(tmp_path / "m.gguf", **parts))


@pytest.mark.parametrize(
    ("experts", "used", "complaint"),
    [(8, 0, "uses 0 of 8 experts"), (8, 9, "uses 9 of 8"), (2000, 2, "expert_count is 2,000")],
)
def test_experts(tmp_path: Path, experts: int, used: int, complaint: str) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "qwen2moe")
    for key, value in {
        "block_count": 1, "embedding_length": 8, "context_length": 64, "attention.head_count": 1,
        "expert_count": experts, "expert_used_count": used,
    }.items():  # fmt: skip
        writer.add_uint32(f"qwen2moe.{key}", value)
    writer.add_token_list(["a"])
    writer.add_tensor("token_embd.weight", np.zeros((1, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFileError, match=complaint):
        check(path)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("offset of output_norm.weight", 32, "overlaps or leaves a gap"),
        ("offset of output_norm.weight", 33, "misaligned"),
        ("type of output_norm.weight", 31, "quantised as Q4_0_4_4.*fetch the model as Q4_0"),
        ("type of output_norm.weight", 70_000, "quant type 70000"),
        ("type of output_norm.weight", 12, "damaged"),
        ("dimension 0 of output_norm.weight", 1 << 63, "impossible shape"),
        ("dimensions of output_norm.weight", 7, "damaged|truncated"),
        ("tensor", b"x" * 70, "a tensor's name has 70 characters"),
        ("tensor", b"output.weight", "'output.weight' is there twice"),
        ("key", b"", "a key is empty"),
        ("key", b"general.type", "'general.type' is there twice"),
        ("type of general.type", 99, "unknown type 99"),
        ("version", 4, "GGUF version 4"),
    ],
)
def test_a_header_that_is_no_header(
    model: Path, name: str, value: float | bytes, complaint: str
) -> None:
    with pytest.raises(ModelFileError, match=complaint):
        read_header(edit(model, name, value))


def test_a_type_newer_than_the_table_is_left_to_the_engine(model: Path) -> None:
    header = read_header(edit(model, "type of output_norm.weight", 99))
    assert "type 99" in {tensor.type_name for tensor in header.tensors}


@pytest.mark.parametrize(
    ("beginning", "complaint"),
    [
        (b"\x40\0\0\0\0\0\0\0" + b'{"weight":{}}', "safetensors"),
        (b"\x80\x02}q\0", "pickle"),
        (b"PK\x03\x04", "zip archive"),
        (b"\x1f\x8b\x08", "compressed"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b'{"architectures": []}', "JSON"),
        (b"ggjt\x03\0\0\0", "before GGUF"),
        (b"FUGG", "big-endian"),
    ],
)
def test_what_was_given_in_its_place(tmp_path: Path, beginning: bytes, complaint: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(beginning + b"\0" * 100)
    with pytest.raises(ModelFileError, match=complaint):
        read_header(path)


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [("eagle3", "a draft head"), ("wavtokenizer-dec", "a speech model"), ("", "names no archi")],
)
def test_kinds_that_cannot_write(tmp_path: Path, architecture: str, kind: str) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tensor("w", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelKindError, match=kind):
        check(path)
