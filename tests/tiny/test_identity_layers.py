"""Identity layers: the same text from more blocks, or no file where that cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.session.session import Session
from tests import tiny_models

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from identity_layers import add_identity_layers


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Busy layers: a block that changed the residual stream would change the text."""
    return tiny_models.write_llama(tmp_path / "source.gguf", vocab="bytes")


def token_ids(path: Path) -> tuple[int, ...]:
    with Session(path) as session:
        return session.complete("the", temperature=0, max_tokens=40, drafter="none").token_ids


def metadata(path: Path) -> dict[str, object]:
    fields = gguf.GGUFReader(path).fields.values()
    return {field.name: field.contents() for field in fields if not field.name.startswith("GGUF.")}


def tensors(path: Path) -> dict[str, gguf.ReaderTensor]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def write_blocks(path: Path, *, count: bool = True) -> Path:
    """A file with two blocks and no vocabulary: to be read, not loaded."""
    writer = gguf.GGUFWriter(path, "llama")
    if count:
        writer.add_block_count(2)
    for block in range(2):
        for name in ("attn_output.weight", "ffn_down.weight", "attn_output.bias", "attn_k.bias"):
            writer.add_tensor(f"blk.{block}.{name}", np.full(4, block + 1, np.float32))
    return tiny_models.finish(writer, path)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_text_is_the_same_and_the_blocks_are_more(
    source: Path, tmp_path: Path, times: int
) -> None:
    copy = add_identity_layers(source, tmp_path / "copy.gguf", times)
    assert copy == tmp_path / "copy.gguf"
    assert token_ids(copy) == token_ids(source)
    before, after = metadata(source), metadata(copy)
    assert after.pop("llama.block_count") == before.pop("llama.block_count") * times  # type: ignore[operator]
    assert after.pop("general.name") == f"{before.pop('general.name')} (synthetic, x{times} depth)"
    assert after == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.gguf", "source.gguf"]


def test_added_blocks_are_copies_with_silent_outputs(source: Path, tmp_path: Path) -> None:
    before, after = tensors(source), tensors(add_identity_layers(source, tmp_path / "copy.gguf", 3))
    per_block = sum(name.startswith("blk.0.") for name in before)
    assert len(after) == len(before) + 2 * tiny_models.N_LAYER * per_block
    for name, tensor in before.items():
        if not name.startswith("blk."):
            np.testing.assert_array_equal(after[name].data, tensor.data)
            continue
        _, block, rest = name.split(".", 2)
        for extra in range(3):
            copy = after[f"blk.{3 * int(block) + extra}.{rest}"]
            silent = extra > 0 and rest in ("attn_output.weight", "ffn_down.weight")
            assert copy.tensor_type == tensor.tensor_type
            np.testing.assert_array_equal(copy.data, 0 * tensor.data if silent else tensor.data)


def test_output_biases_are_silent_too_and_others_are_kept(tmp_path: Path) -> None:
    after = tensors(
        add_identity_layers(write_blocks(tmp_path / "in.gguf"), tmp_path / "out.gguf", 2)
    )
    assert [after[f"blk.{block}.attn_output.bias"].data[0] for block in range(4)] == [1, 0, 2, 0]
    assert [after[f"blk.{block}.attn_k.bias"].data[0] for block in range(4)] == [1, 1, 2, 2]


def test_an_unusual_alignment_and_values_for_each_block_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "in.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    writer.add_block_count(2)
    writer.add_head_count_kv([2, 4])
    writer.add_array("tokenizer.ggml.tokens", [b"\xff", b"a"])
    for block in range(2):
        for name in ("attn_output.weight", "ffn_down.weight"):
            writer.add_tensor(f"blk.{block}.{name}", np.full(4, block + 1, np.float32))
    tiny_models.finish(writer, path)
    copy = gguf.GGUFReader(add_identity_layers(path, tmp_path / "out.gguf", 2))
    assert copy.alignment == 256
    assert all(tensor.data_offset % 256 == 0 for tensor in copy.tensors)
    assert copy.fields["llama.attention.head_count_kv"].contents() == [2, 2, 4, 4]
    tokens = copy.fields["tokenizer.ggml.tokens"]
    assert [tokens.parts[at].tobytes() for at in tokens.data] == [b"\xff", b"a"]


@pytest.mark.parametrize("times", [0, -1])
def test_times_below_one_are_refused(source: Path, tmp_path: Path, times: int) -> None:
    with pytest.raises(ValueError, match=f"times is {times}"):
        add_identity_layers(source, tmp_path / "copy.gguf", times)
    assert list(tmp_path.iterdir()) == [source]


def test_other_files_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    nameless = write_blocks(tmp_path / "nameless.gguf", count=False)
    mamba = tiny_models.write_mamba(tmp_path / "mamba.gguf")
    gemma = tiny_models.write_gemma_swa(tmp_path / "gemma.gguf")
    mixture = tmp_path / "mixture.gguf"
    writer = gguf.GGUFWriter(mixture, "llama")
    writer.add_block_count(1)
    writer.add_tensor("blk.0.attn_output.weight", np.ones((4, 4), np.float32))
    writer.add_tensor("blk.0.ffn_down_exps.weight", np.ones((2, 4, 4), np.float32))
    tiny_models.finish(writer, mixture)
    files = sorted(tmp_path.iterdir())
    for path, words in (
        (nameless, "does not say how many blocks"),
        (mamba, "architecture 'mamba'"),
        (gemma, "architecture 'gemma3'"),
        (mixture, "block 0 has no ffn_down.weight"),
    ):
        with pytest.raises(ValueError, match=words):
            add_identity_layers(path, tmp_path / "copy.gguf", 2)
    assert sorted(tmp_path.iterdir()) == files


def test_the_source_is_not_overwritten(source: Path) -> None:
    before = source.read_bytes()
    with pytest.raises(ValueError, match="is the source itself"):
        add_identity_layers(source, source, 2)
    assert source.read_bytes() == before


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_a_failure_half_way_leaves_no_file_and_keeps_the_old_one(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    old = tmp_path / "copy.gguf"
    old.write_bytes(b"old")
    write, written = gguf.GGUFWriter.write_tensor_data, []

    def fail(writer: gguf.GGUFWriter, data: np.ndarray) -> None:  # type: ignore[type-arg]
        if len(written) == 5:
            raise error
        written.append(data.nbytes)
        write(writer, data)

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", fail)
    with pytest.raises(type(error)):
        add_identity_layers(source, old, 2)
    assert len(written) == 5
    assert sorted(tmp_path.iterdir()) == [old, source]
    assert old.read_bytes() == b"old"


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_zero_bytes_are_zero(kind: str) -> None:
    number = gguf.GGMLQuantizationType[kind]
    zeros = np.zeros((2, gguf.GGML_QUANT_SIZES[number][1]), np.uint8)
    assert not gguf.dequantize(zeros, number).any()
