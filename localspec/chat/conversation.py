"""A conversation as a tree: every edit and every other answer is a branch, nothing is lost.

Knows nothing of files or screens. Text is stored as the model and the person wrote it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from localspec.control.economics import COPIES_ALONE
from localspec.decoding.events import Round

__all__ = ["Conversation", "Turn", "new_id", "new_notes"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. role: `user` or `assistant`.

    token_ids: of an answer, so that it can be continued exactly. reason: why it ended, as in
    Finished, or `interrupted` when the program died. timings: as in Stats.timings(), with
    `drafter`, `verifier` and `seed`. rounds: how it was made. thinking_s: seconds spent between
    the thinking marks; opened: the prompt itself had opened them. model: the target's file name.
    """

    id: str
    parent: str | None
    role: str
    text: str
    token_ids: tuple[int, ...] = ()
    reason: str | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    rounds: tuple[Round, ...] = ()
    thinking_s: float | None = None
    opened: bool = False
    model: str = ""
    notes: tuple[str, ...] = ()


class Conversation:
    """All turns, and the branch that is read now: the path from the root to `head`."""

    def __init__(self, system: str = "") -> None:
        self.system = system
        self.turns: dict[str, Turn] = {}
        self.head: str | None = None
        self._children: dict[str | None, list[str]] = {}

    def add(self, turn: Turn) -> None:
        """Put a turn behind its parent and read on from it; the same id replaces the turn.

        Raises KeyError for a parent that is not here, and for a turn that would move.
        """
        if turn.parent is not None and turn.parent not in self.turns:
            raise KeyError(f"turn {turn.id} has an unknown parent {turn.parent}")
        if turn.id in self.turns and self.turns[turn.id].parent != turn.parent:
            raise KeyError(f"turn {turn.id} cannot move behind another parent")
        if turn.id not in self.turns:
            self._children.setdefault(turn.parent, []).append(turn.id)
        self.turns[turn.id] = turn
        self.head = turn.id

    def path(self, head: str | None = None) -> list[Turn]:
        """The turns from the first to `head` (by default the one that is read now)."""
        at = self.head if head is None else head
        found: list[Turn] = []
        while at is not None:
            turn = self.turns[at]
            found.append(turn)
            at = turn.parent
        return found[::-1]

    def messages(self, head: str | None) -> list[dict[str, str]]:
        """What the template is given for an answer behind `head`: the system prompt first."""
        said = [{"role": turn.role, "content": turn.text} for turn in self._to(head)]
        return [{"role": "system", "content": self.system}, *said] if self.system else said

    def siblings(self, turn_id: str) -> tuple[int, list[str]]:
        """Its place among the turns behind the same parent, and their ids in order of time."""
        ids = self._children[self.turns[turn_id].parent]
        return ids.index(turn_id), ids

    def branch(self, turn_id: str, step: int) -> str:
        """Read the neighbouring branch at this turn, as far as it was read last; the new head."""
        at, ids = self.siblings(turn_id)
        self.head = self._deepest(ids[(at + step) % len(ids)])
        return self.head

    def last(self, role: str) -> Turn | None:
        """The last turn of a role on the branch that is read now."""
        return next((turn for turn in reversed(self.path()) if turn.role == role), None)

    def title(self) -> str:
        """The first line of the first question."""
        first = next((turn for turn in self.path() if turn.role == "user"), None)
        return next(iter(first.text.strip().splitlines()), "")[:80] if first else ""

    def __iter__(self) -> Iterator[Turn]:
        return iter(self.turns.values())

    def __len__(self) -> int:
        return len(self.turns)

    def _to(self, head: str | None) -> list[Turn]:
        return self.path(head) if head is not None else []

    def _deepest(self, turn_id: str) -> str:
        while children := self._children.get(turn_id):
            turn_id = children[-1]
        return turn_id


def new_id() -> str:
    """A fresh id; two programs that go on with one conversation do not meet."""
    return uuid.uuid4().hex[:12]


def new_notes(notes: Iterable[str], said: set[str]) -> list[str]:
    """Those that `said` does not have yet; they are added to it.

    COPIES_ALONE is said once: costs are measured again in every answer, so its figures differ.
    """
    new: list[str] = []
    for note in notes:
        key = COPIES_ALONE if note.startswith(COPIES_ALONE) else note
        if key not in said:
            said.add(key)
            new.append(note)
    return new
