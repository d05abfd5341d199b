"""A copy of a model that writes the same text at several times the cost: identity layers.

Behind each block come copies of it whose two output projections are zero, so that the residual
stream passes through them unchanged. What is measured on such a file is synthetic: it is the cost
of a deeper target, not the text of one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np

__all__ = ["add_identity_layers"]

# Their blocks are all alike. Others, such as Gemma, choose the attention by the block's number.
_ARCHITECTURES = ("llama", "qwen2")
_OUTPUTS = ("attn_output.weight", "ffn_down.weight")
_ZEROED = (*_OUTPUTS, "attn_output.bias", "ffn_down.bias")
_BLOCK_TENSOR = re.compile(r"blk\.(\d+)\.(.+)")


def add_identity_layers(source: Path, target: Path, times: int) -> Path:
    """Write `source` with `times` as many blocks to `target`, and return that.

    Raises ValueError where the text could not stay the same. `target` appears when it is complete.
    """
    if times < 1:
        raise ValueError(f"times is {times}: it must be a whole number from 1 on")
    if target.exists() and target.samefile(source):
        raise ValueError(f"{target} is the source itself: give another name")
    reader = gguf.GGUFReader(source)
    n_blocks = _count_blocks(source, reader)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    writer = gguf.GGUFWriter(partial, _text(reader, "general.architecture"))
    writer.data_alignment = int(reader.alignment)
    try:
        _copy_metadata(source, reader, writer, n_blocks, times)
        _write_tensors(reader, writer, times)
        writer.close()
        partial.replace(target)
    finally:
        writer.close()
        partial.unlink(missing_ok=True)
    return target


def _count_blocks(source: Path, reader: gguf.GGUFReader) -> int:
    """The number of blocks; ValueError unless all are of the known kind and in this file."""
    arch = _text(reader, "general.architecture")
    if arch not in _ARCHITECTURES:
        known = " and ".join(_ARCHITECTURES)
        raise ValueError(
            f"{source} has the architecture {arch!r}; only {known} can get more layers"
        )
    if reader.byte_order == "S":
        raise ValueError(f"{source} has the byte order of another machine")
    split = reader.get_field("split.count")
    if split is not None and split.contents() > 1:
        raise ValueError(f"{source} is one part of a split model: merge the parts first")
    count = reader.get_field(f"{arch}.block_count")
    if count is None:
        raise ValueError(f"{source} does not say how many blocks it has: no {arch}.block_count")
    n_blocks = int(count.contents())
    types = {tensor.name: tensor.tensor_type for tensor in reader.tensors}
    for block in range(n_blocks):
        for rest in _OUTPUTS:
            if f"blk.{block}.{rest}" not in types:
                raise ValueError(f"{source}: block {block} has no {rest}, so it cannot be silenced")
    for name, kind in types.items():
        block_text, rest = _split_name(name)
        if block_text is not None and int(block_text) >= n_blocks:
            raise ValueError(f"{source} has {name}, but says it has {n_blocks} blocks")
        if rest in _ZEROED and not _zero_bytes_are_zero(kind):
            raise ValueError(f"{source}: {name} is {kind.name}, whose zero is not known")
    return n_blocks


def _zero_bytes_are_zero(kind: gguf.GGMLQuantizationType) -> bool:
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    try:
        return not gguf.dequantize(np.zeros((1, block_bytes), np.uint8), kind).any()
    except NotImplementedError:
        return False


def _copy_metadata(
    source: Path, reader: gguf.GGUFReader, writer: gguf.GGUFWriter, n_blocks: int, times: int
) -> None:
    """All keys, but for the two that change. Empty arrays are left out: the writer has none."""
    arch = _text(reader, "general.architecture")
    kinds = gguf.GGUFValueType
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.name"):
            continue
        kind, *inner = field.types
        value = _value(field)
        if key == f"{arch}.block_count":
            value = n_blocks * times
        elif kind == kinds.ARRAY and not inner:
            continue
        elif len(inner) > 1:
            raise ValueError(f"{source}: {key} is an array of arrays, which cannot be copied")
        elif kind == kinds.ARRAY and key.startswith(f"{arch}.") and len(value) == n_blocks:
            value = [item for item in value for _ in range(times)]  # one for each block
        writer.add_key_value(key, value, kind, inner[0] if inner else None)
    name = _text(reader, "general.name") or source.stem
    writer.add_name(f"{name} (synthetic, x{times} depth)")


def _value(field: gguf.ReaderField) -> Any:
    """As `contents()`, with texts as bytes: they need not be UTF-8."""
    if field.types[-1] != gguf.GGUFValueType.STRING:
        return field.contents()
    texts = [field.parts[at].tobytes() for at in field.data]
    return texts if field.types[0] == gguf.GGUFValueType.ARRAY else texts[0]


def _text(reader: gguf.GGUFReader, key: str) -> str:
    field = reader.get_field(key)
    return "" if field is None else str(field.contents())


def _write_tensors(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, times: int) -> None:
    """One tensor at a time, from the mapped file."""
    for name, tensor, _ in _layout(reader, times):
        data = tensor.data
        writer.add_tensor_info(name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, tensor, is_zero in _layout(reader, times):
        data = tensor.data
        writer.write_tensor_data(np.zeros(data.shape, data.dtype) if is_zero else data)


def _layout(reader: gguf.GGUFReader, times: int) -> Iterator[tuple[str, gguf.ReaderTensor, bool]]:
    """Name in the copy, tensor of the source, and whether it becomes zero; in the file's order."""
    for tensor in reader.tensors:
        block, rest = _split_name(tensor.name)
        if block is None:
            yield tensor.name, tensor, False
            continue
        first = int(block) * times
        for number in range(first, first + times):
            yield f"blk.{number}.{rest}", tensor, number > first and rest in _ZEROED


def _split_name(name: str) -> tuple[str | None, str]:
    """("3", "ffn_down.weight") of blk.3.ffn_down.weight; (None, name) outside the blocks."""
    found = _BLOCK_TENSOR.fullmatch(name)
    return (found[1], found[2]) if found else (None, name)
