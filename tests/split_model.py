"""A whole GGUF file cut in parts, as llama-gguf-split does it."""

from __future__ import annotations

from pathlib import Path

import gguf


def split(path: Path, folder: Path, count: int, name: str = "big") -> list[Path]:
    """Write `count` parts into `folder`; metadata goes into the first."""
    reader = gguf.GGUFReader(path)
    tensors = list(reader.tensors)
    parts = []
    for no in range(count):
        part = folder / f"{name}-{no + 1:05d}-of-{count:05d}.gguf"
        writer = gguf.GGUFWriter(part, str(reader.fields["general.architecture"].contents()))
        if no == 0:
            copy_metadata(reader, writer)
        writer.add_uint16("split.no", no)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(tensors))
        for tensor in tensors[no::count]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        parts.append(part)
    return parts


def copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    """All fields but those that the writer sets itself."""
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
