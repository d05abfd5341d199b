"""Which notes of an answer are new: what holds for all answers is said once in a conversation."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.control.economics import COPIES_ALONE

__all__ = ["new_notes"]


def new_notes(notes: Iterable[str], said: set[str]) -> list[str]:
    """Those that `said` does not have yet; they are added to it.

    Costs are measured anew in every answer: COPIES_ALONE with other figures is no other note.
    """
    new: list[str] = []
    for note in notes:
        key = COPIES_ALONE if note.startswith(COPIES_ALONE) else note
        if key not in said:
            said.add(key)
            new.append(note)
    return new
