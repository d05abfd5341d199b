"""A copy of a model that says the same and costs more: identity layers between its own.

Behind each block come copies of it whose attention and feed-forward output projections are zero,
so that the residual stream passes unchanged. Everything made from such a file is synthetic: it
shows what a larger target would cost, not what it would say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

__all__ = ["deepen"]

_OUTPUTS = ("attn_output.weight", "attn_output.bias", "ffn_down.weight", "ffn_down.bias")
_NEEDED = ("attn_output.weight", "ffn_down.weight")


def deepen(source: Path, target: Path, times: int) -> Path:
    """Write `target`: `source` with `times` as many blocks, of which the added ones do nothing.

    All-zero bytes are zero in the types that llama.cpp writes (checked for each file). Raises
    ValueError for times below 1 and for a model whose blocks have other output projections.
    """
    if times < 1:
        raise ValueError(f"times is {times}: it must be 1 or more")
    reader = gguf.GGUFReader(source)
    arch = str(reader.fields["general.architecture"].contents())
    count_key = f"{arch}.block_count"
    if count_key not in reader.fields:
        raise ValueError(f"{source.name} does not say how many blocks it has ({count_key})")
    n_blocks = int(reader.fields[count_key].contents())
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for block in range(n_blocks):
        for name in _NEEDED:
            if f"blk.{block}.{name}" not in tensors:
                raise ValueError(f"{source.name}: block {block} has no {name}; {arch} is not known")
    partial = target.with_name(target.name + ".part")
    writer = gguf.GGUFWriter(partial, arch)
    try:
        _copy_metadata(reader, writer, count_key, n_blocks * times, times)
        plan = list(_plan(reader, times))
        for name, tensor, _ in plan:
            writer.add_tensor_info(
                name,
                tensor.data.shape,
                tensor.data.dtype,
                tensor.data.nbytes,
                tensor.tensor_type,
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for _, tensor, is_zero in plan:
            if is_zero:
                zeros = np.zeros_like(tensor.data)
                if gguf.dequantize(zeros[:1], tensor.tensor_type).any():
                    raise ValueError(f"zero bytes are not zero in {tensor.tensor_type.name}")
                writer.write_tensor_data(zeros)
            else:
                writer.write_tensor_data(tensor.data)
        writer.close()
        partial.replace(target)
    except BaseException:
        writer.close()
        partial.unlink(missing_ok=True)
        raise
    return target


def _copy_metadata(
    reader: gguf.GGUFReader, writer: gguf.GGUFWriter, count_key: str, n_blocks: int, times: int
) -> None:
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = field.contents()
        if field.name == count_key:
            value = n_blocks
        elif field.name == "general.name":
            value = f"{value} (synthetic, {times} times as deep)"
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], sub_type)


def _plan(reader: gguf.GGUFReader, times: int) -> Iterator[tuple[str, gguf.ReaderTensor, bool]]:
    """(name in the copy, tensor of the source, whether its bytes become zero)."""
    for tensor in reader.tensors:
        found = re.fullmatch(r"blk\.(\d+)\.(.+)", tensor.name)
        if not found:
            yield tensor.name, tensor, False
            continue
        block, rest = int(found[1]), found[2]
        yield f"blk.{block * times}.{rest}", tensor, False
        for copy in range(1, times):
            yield f"blk.{block * times + copy}.{rest}", tensor, rest in _OUTPUTS
