"""Damage for GGUF files: where their fields lie, and what chance does to them."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

_FORMS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B",
          10: "<Q", 11: "<q", 12: "<d"}  # fmt: skip
_TEXT, _ARRAY = 8, 9
_ODD = (0, 1, 2, 3, 7, 31, 32, 63, 64, 127, 128, 255, 256, 513, 1023, 1025, 65535, 65536,
        (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1)  # fmt: skip
_ODD_REALS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
_ODD_TEXTS = (
    *(b"", b"llama", b"mamba", b"clip", b"bert", b"gpt2", b"rwkv", b"t5", b"none", b"\xff"),
    *(b"yarn", b"longrope", b"qwen2", b"gemma3", b"deepseek2", b"lfm2", b"a" * 80),
)


@dataclass(frozen=True, slots=True)
class Field:
    """One number or text of a header. form: struct's, empty for the bytes of a text."""

    at: int
    size: int
    form: str
    name: str


def fields(data: bytes) -> tuple[list[Field], int]:
    """All fields of an intact file, and where its header ends."""
    found: list[Field] = []
    at = 0

    def number(form: str, name: str) -> int:
        nonlocal at
        size = struct.calcsize(form)
        found.append(Field(at, size, form, name))
        (value,) = struct.unpack_from(form, data, at)
        at += size
        return int(value) if form not in ("<f", "<d") else 0

    def text(name: str) -> bytes:
        nonlocal at
        n = number("<Q", f"length of {name}")
        found.append(Field(at, n, "", name))
        at += n
        return data[at - n : at]

    def value(kind: int, name: str) -> None:
        if kind == _TEXT:
            text(name)
        else:
            number(_FORMS[kind], name)

    for form, name in (("<I", "magic"), ("<I", "version")):
        number(form, name)
    n_tensors, n_keys = number("<Q", "tensors"), number("<Q", "keys")
    for _ in range(n_keys):
        key = text("key").decode()
        kind = number("<I", f"type of {key}")
        if kind != _ARRAY:
            value(kind, key)
            continue
        kind, n = number("<I", f"type in {key}"), number("<Q", f"length of {key}")
        for _ in range(n):
            value(kind, f"element of {key}")
    for _ in range(n_tensors):
        name = text("tensor").decode()
        for i in range(number("<I", f"dimensions of {name}")):
            number("<Q", f"dimension {i} of {name}")
        number("<I", f"type of {name}")
        number("<Q", f"offset of {name}")
    return found, at


def mutated(data: bytes, dice: random.Random) -> tuple[bytes, list[str]]:
    """A damaged copy, and what was done to it."""
    found, end = fields(data)
    # metadata of the model itself is few fields among thousands of tokens: weigh it up
    few = [f for f in found if not f.name.startswith(("element of tokenizer", "length of element"))]
    done: list[str] = []
    damaged = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        kind = dice.choices(_KINDS, _WEIGHTS)[0]
        done.append(kind(damaged, dice, few if dice.random() < 0.8 else found, end))
    return bytes(damaged), done


def _number(damaged: bytearray, dice: random.Random, found: list[Field], end: int) -> str:
    field = dice.choice([f for f in found if f.form])
    if field.at + field.size > len(damaged):
        return "nothing"
    if field.form in ("<f", "<d"):
        real = dice.choice(_ODD_REALS)
        struct.pack_into(field.form, damaged, field.at, real)
        return f"{field.name} = {real}"
    old = int.from_bytes(damaged[field.at : field.at + field.size], "little")
    new = dice.choice((*_ODD, old + 1, old - 1, old * 2, old // 2, dice.getrandbits(64)))
    new %= 1 << (8 * field.size)
    damaged[field.at : field.at + field.size] = new.to_bytes(field.size, "little")
    return f"{field.name} = {new}"


def _text(damaged: bytearray, dice: random.Random, found: list[Field], end: int) -> str:
    field = dice.choice([f for f in found if not f.form])
    new = dice.choice((*_ODD_TEXTS, bytes(dice.getrandbits(8) for _ in range(field.size))))
    damaged[field.at : field.at + field.size] = new
    length = struct.pack("<Q", len(new))
    damaged[field.at - 8 : field.at] = length
    return f"{field.name} = {new!r}"


def _flip(damaged: bytearray, dice: random.Random, found: list[Field], end: int) -> str:
    at = dice.randrange(max(1, min(end, len(damaged))))
    if at < len(damaged):
        damaged[at] ^= 1 << dice.randrange(8)
    return f"bit at {at}"


def _cut(damaged: bytearray, dice: random.Random, found: list[Field], end: int) -> str:
    at = dice.choice((dice.randrange(len(damaged) + 1), dice.randrange(end + 1), len(damaged) - 1))
    del damaged[max(0, at) :]
    return f"cut at {at}"


def _splice(damaged: bytearray, dice: random.Random, found: list[Field], end: int) -> str:
    at, n = dice.randrange(end), dice.randrange(1, 64)
    if dice.random() < 0.5:
        del damaged[at : at + n]
        return f"{n} bytes gone at {at}"
    damaged[at:at] = damaged[at : at + n]
    return f"{n} bytes doubled at {at}"


def _swap(damaged: bytearray, dice: random.Random, found: list[Field], end: int) -> str:
    a = dice.choice([f for f in found if f.form])
    b = dice.choice([f for f in found if f.form == a.form])
    if max(a.at, b.at) + a.size > len(damaged):
        return "nothing"
    one, other = damaged[a.at : a.at + a.size], damaged[b.at : b.at + b.size]
    damaged[a.at : a.at + a.size], damaged[b.at : b.at + b.size] = other, one
    return f"{a.name} and {b.name} swapped"


def _weights(damaged: bytearray, dice: random.Random, found: list[Field], end: int) -> str:
    if len(damaged) <= end + 64:
        return "nothing"
    pattern = dice.choice((b"\xff\xff\xff\x7f", b"\x00\x00\x80\x7f", b"\xff" * 4, b"\x00" * 4))
    for _ in range(dice.choice((1, 100))):
        at = dice.randrange(end, len(damaged) - 4)
        damaged[at : at + 4] = pattern
    return f"weights {pattern!r}"


_KINDS = (_number, _text, _flip, _cut, _splice, _swap, _weights)
_WEIGHTS = (10, 3, 4, 2, 1, 2, 1)
