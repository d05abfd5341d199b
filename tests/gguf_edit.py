"""One field of a GGUF file set to another value, everything else left as it is."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.fuzz.mutate import fields


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
