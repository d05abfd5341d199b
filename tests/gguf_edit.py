"""One field or tensor of a GGUF file changed, everything else left as it is."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf

from tests.fuzz.mutate import fields
from tests.split_model import copy_metadata


def edit(path: Path, name: str, value: float | bytes, *, nth: int = 0) -> Path:
    """Change the field `name` (as tests.fuzz.mutate.fields calls it) in place; returns `path`.

    A text may change its length.
    """
    data = bytearray(path.read_bytes())
    found, _ = fields(bytes(data))
    field = [f for f in found if f.name == name][nth]
    if isinstance(value, bytes):
        data[field.at : field.at + field.size] = value
        data[field.at - 8 : field.at] = struct.pack("<Q", len(value))
    else:
        struct.pack_into(field.form, data, field.at, value)
    path.write_bytes(bytes(data))
    return path


def without_tensor(path: Path, destination: Path, name: str) -> Path:
    """Write a copy that lacks the tensor `name`; returns `destination`."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(destination, str(reader.fields["general.architecture"].contents()))
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        if tensor.name != name:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return destination
