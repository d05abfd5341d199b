"""The automaton of well-formed UTF-8 against Python's decoder."""

from __future__ import annotations

import itertools

import numpy as np

from localspec.grammar.utf8 import N_STATES, REFUSED, WHOLE, after_bytes, transitions

EDGES = (0x00, 0x01, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF)
LEADS = (0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFF)


ENDINGS = [b"", *(bytes((byte, *[0x80] * n)) for byte in (0x80, 0xBF) for n in range(3))]


def can_go_on(raw: bytes) -> bool:
    """Some ending makes whole text of it. (Python's incremental decoder waits too long.)"""
    return any(is_whole(raw + ending) for ending in ENDINGS)


def is_whole(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in raw


def test_every_sequence_of_edges_is_judged_as_python_does() -> None:
    every = EDGES + LEADS
    wide = ((lead,) for lead in (0xF0, 0xF1, 0xF4))
    rows = [*(itertools.product(every, repeat=n) for n in range(4))]
    rows += [itertools.product(lead, every, every, every) for lead in wide]
    for raw in map(bytes, itertools.chain(*rows)):
        state = after_bytes(WHOLE, raw)
        assert (state != REFUSED) == can_go_on(raw), raw.hex()
        assert (state == WHOLE) == is_whole(raw), raw.hex()


def test_every_character_is_taken() -> None:
    for code in (*range(1, 0x900), *range(0xD700, 0xE100), *range(0x10000, 0x10900), 0x10FFFF):
        raw = chr(code).encode("utf-8", "surrogatepass")
        is_surrogate = 0xD800 <= code <= 0xDFFF
        assert after_bytes(WHOLE, raw) == (REFUSED if is_surrogate else WHOLE)


def test_the_table_says_what_byte_after_byte_does() -> None:
    rng = np.random.default_rng(3)
    every = np.array(EDGES + LEADS)
    pieces = [b"", b"the", b"\0a", *(bytes(rng.choice(every, n)) for n in [1, 2, 3] * 2000)]
    table = transitions(pieces)
    for state in range(N_STATES):
        expected = [after_bytes(state, piece) for piece in pieces]
        assert table[state].tolist() == expected
