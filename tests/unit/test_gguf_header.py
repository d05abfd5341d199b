"""Whatever the bytes of a file are, reading its header ends in a header or a named error."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.errors import LocalspecError, ModelFileError, ModelKindError, ModelNotFoundError
from localspec.gguf.header import read_header
from localspec.gguf.model_kind import kind_of, require_language_model
from tests import tiny_models

TOKENS = ["<s>", "a", "é", "", "▁b"]


def write_model(
    path: Path, *, tokens: list[str] | None = None, architecture: str = "llama", weights: int = 64
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("small")
    writer.add_context_length(128)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS if tokens is None else tokens)
    writer.add_token_scores([0.5] * len(TOKENS if tokens is None else tokens))
    writer.add_chat_template("{{ messages }}")
    writer.add_license("mit")
    if weights:
        writer.add_tensor("token_embd.weight", np.zeros((2, weights // 2), np.float16))
        writer.add_tensor("output_norm.weight", np.zeros(3, np.float32))
    return finish(writer)


def finish(writer: gguf.GGUFWriter) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path = writer.path
    assert path is not None
    return Path(path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "small.gguf")


def test_what_a_model_says_about_itself(model: Path) -> None:
    header = read_header(model)
    assert header.name == "small"
    assert header.architecture == "llama"
    assert kind_of(header) == "language model"
    assert header.quant == "F16"
    assert header.context_length == 128
    assert header.n_params == 67
    assert (header.n_vocab, header.tokenizer_model) == (5, "gpt2")
    assert header.chat_template == "{{ messages }}"
    assert header.licence == "mit"
    assert [text.decode() for text in header.token_texts()] == TOKENS
    first = header.tensors[0]
    assert (first.name, first.shape, first.type_name) == ("token_embd.weight", (32, 2), "F16")
    require_language_model(header, "target")


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_cut_file_is_named_with_its_size(model: Path, kept: float) -> None:
    whole = model.read_bytes()
    n_kept = int(len(whole) * kept)
    model.write_bytes(whole[:n_kept])
    with pytest.raises(ModelFileError, match=f"truncated.*the file has {n_kept:,} bytes"):
        read_header(model)


def test_one_missing_byte_is_seen(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", np.zeros(8, np.float32))  # 32 bytes: no padding behind it
    path = finish(writer)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ModelFileError, match=rf"end at byte {len(whole)}, .* {len(whole) - 1} by"):
        read_header(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "empty"),
        (b"GG", "not a GGUF"),
        (b"GGUF", "truncated"),
        (b"hello world, I am a text\n", "not a GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "claims 1,152,921,504,606,846,976 tensors"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63), "truncated"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=complaint):
        read_header(path)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no file"):
        read_header(tmp_path / "absent.gguf")
    with pytest.raises(ModelNotFoundError, match="no file"):
        read_header(Path("a\0b"))
    with pytest.raises(ModelNotFoundError, match="no file"):
        read_header(tmp_path / ("x" * 5000))
    with pytest.raises(ModelFileError, match="folder"):
        read_header(tmp_path)


def test_a_path_in_any_script(tmp_path: Path) -> None:
    folder = tmp_path / "Модели 模型\u3000é"
    folder.mkdir()
    assert read_header(write_model(folder / "模.gguf")).n_vocab == 5


def test_damaged_bytes_never_raise_anything_else(model: Path) -> None:
    whole = model.read_bytes()
    dice = random.Random(7)
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole[: dice.choice([len(whole), dice.randrange(len(whole))])])
        for _ in range(dice.randint(1, 12)):
            if damaged:
                damaged[dice.randrange(len(damaged))] = dice.choice([0, 1, 0x7F, 0xFF])
        model.write_bytes(bytes(damaged))
        try:
            header = read_header(model)
            _ = (
                header.quant,
                header.context_length,
                header.n_params,
                kind_of(header),
                header.licence,
            )
            assert sum(1 for _ in header.token_texts()) == header.n_vocab
            require_language_model(header, "target")
        except LocalspecError:
            refused += 1
    assert refused > 100


def test_a_vocabulary_of_the_wrong_type_is_none(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_string("tokenizer.ggml.tokens", "not a list")
    writer.add_tensor("w", np.zeros(4, np.float32))
    header = read_header(finish(writer))
    assert header.n_vocab == 0
    with pytest.raises(ModelKindError, match="without a vocabulary"):
        require_language_model(header, "target")


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (tiny_models.write_projector, "vision projector.*language model that it belongs to"),
        (tiny_models.write_adapter, "LoRA adapter.*base model"),
        (tiny_models.write_bert, "an embedding model.*generates text"),
        (lambda path: write_model(path, weights=0), "vocabulary without weights"),
        (lambda path: write_model(path, architecture="t5"), "an encoder-decoder model"),
        (lambda path: write_model(path, architecture="dream"), "diffusion model"),
    ],
)
def test_a_file_of_another_kind_is_refused_for_its_role(
    tmp_path: Path, write: Callable[[Path], Path], complaint: str
) -> None:
    header = read_header(write(tmp_path / "m.gguf"))
    with pytest.raises(ModelKindError, match=f"cannot be the draft: .*{complaint}"):
        require_language_model(header, "draft")


def write_part(folder: Path, no: int, count: int, name: str = "big") -> Path:
    writer = gguf.GGUFWriter(folder / f"{name}-{no + 1:05d}-of-{count:05d}.gguf", "llama")
    writer.add_uint16("split.no", no)
    writer.add_uint16("split.count", count)
    if no == 0:  # llama-gguf-split can leave the first part without tensors
        writer.add_token_list(TOKENS)
    else:
        writer.add_tensor(f"blk.{no}.weight", np.zeros(8, np.float32))
    return finish(writer)


def test_any_part_stands_for_the_whole_split_model(tmp_path: Path) -> None:
    parts = [write_part(tmp_path, no, 3) for no in range(3)]
    header = read_header(parts[1])
    assert header.path == parts[0]
    assert header.parts == tuple(parts)
    assert header.n_params == 16
    require_language_model(header, "target")


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    parts = [write_part(tmp_path, no, 3) for no in range(3)]
    parts[1].unlink()
    with pytest.raises(ModelNotFoundError, match=r"3 parts, and 1 .*big-00002-of-00003\.gguf"):
        read_header(parts[0])


def test_a_renamed_or_swapped_part_is_named(tmp_path: Path) -> None:
    parts = [write_part(tmp_path, no, 2) for no in range(2)]
    with pytest.raises(ModelFileError, match="one of 2 parts"):
        read_header(parts[0].rename(tmp_path / "model.gguf"))
    parts[1].rename(parts[0])
    write_part(tmp_path, 1, 2)
    with pytest.raises(ModelFileError, match=r"part 1 \(from 0\) of 2"):
        read_header(parts[0])
