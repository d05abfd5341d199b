"""What is said once in a conversation, and what each time."""

from __future__ import annotations

from localspec.chat.notes import new_notes
from localspec.control.economics import COPIES_ALONE


def test_the_outlook_with_other_figures_is_no_other_note() -> None:
    said: set[str] = set()
    first = f"{COPIES_ALONE}: a draft model cannot pay here: 15 a round, 0.91 times"
    assert new_notes([first], said) == [first]
    assert new_notes([f"{COPIES_ALONE}: a draft model can hardly pay here: 3 a round"], said) == []


def test_other_notes_are_new_when_a_figure_is() -> None:
    said: set[str] = set()
    notes = ["2 earlier messages left out", "3 earlier messages left out"]
    assert new_notes(notes, said) == notes
    assert new_notes(notes, said) == []
