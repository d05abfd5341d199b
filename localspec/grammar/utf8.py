"""Which bytes may go on a text of well-formed UTF-8 (Unicode 16, table 3-7), as a small automaton.

llama.cpp's grammar takes overlong forms, surrogates and values beyond U+10FFFF for characters, and
reads no further than a NUL; a decoder makes something else of them. Under a grammar they are
therefore forbidden: no byte of them may come.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["N_STATES", "REFUSED", "WHOLE", "after_bytes", "transitions"]

WHOLE = 0  # between two characters
REFUSED = -1
N_STATES = 8
_ONE, _TWO, _THREE, _E0, _ED, _F0, _F4 = range(1, N_STATES)  # bytes that are missing; first bytes


def _moves() -> list[list[int]]:
    """Shape (N_STATES, 256): the state behind a byte."""
    moves = [[REFUSED] * 256 for _ in range(N_STATES)]

    def add(state: int, first: int, last: int, following: int) -> None:
        for byte in range(first, last + 1):
            moves[state][byte] = following

    add(WHOLE, 0x01, 0x7F, WHOLE)
    add(WHOLE, 0xC2, 0xDF, _ONE)
    add(WHOLE, 0xE0, 0xEF, _TWO)
    add(WHOLE, 0xE0, 0xE0, _E0)
    add(WHOLE, 0xED, 0xED, _ED)
    add(WHOLE, 0xF0, 0xF0, _F0)
    add(WHOLE, 0xF1, 0xF3, _THREE)
    add(WHOLE, 0xF4, 0xF4, _F4)
    add(_ONE, 0x80, 0xBF, WHOLE)
    add(_TWO, 0x80, 0xBF, _ONE)
    add(_THREE, 0x80, 0xBF, _TWO)
    add(_E0, 0xA0, 0xBF, _ONE)  # below: overlong
    add(_ED, 0x80, 0x9F, _ONE)  # above: surrogates
    add(_F0, 0x90, 0xBF, _TWO)  # below: overlong
    add(_F4, 0x80, 0x8F, _TWO)  # above: beyond U+10FFFF
    return moves


_MOVES = _moves()


def after_bytes(state: int, piece: bytes) -> int:
    """The state behind more bytes; REFUSED when they cannot go on from here."""
    for byte in piece:
        state = _MOVES[state][byte]
        if state == REFUSED:
            break
    return state


def transitions(pieces: Sequence[bytes]) -> npt.NDArray[np.int8]:
    """The state behind each piece, from each state: int8, shape (N_STATES, len(pieces))."""
    found = np.full((N_STATES, len(pieces)), REFUSED, np.int8)
    for i, piece in enumerate(pieces):
        if not piece:
            found[:, i] = range(N_STATES)
        elif piece.isascii():  # never within a character
            found[WHOLE, i] = REFUSED if 0 in piece else WHOLE
        elif 0x80 <= piece[0] <= 0xBF:  # never at the beginning of one
            found[1:, i] = [after_bytes(state, piece) for state in range(1, N_STATES)]
        else:
            found[WHOLE, i] = after_bytes(WHOLE, piece)
    return found
