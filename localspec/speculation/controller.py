"""How many tokens to draft in the next round."""

from __future__ import annotations

from typing import Protocol

from localspec.speculation.events import Round

__all__ = ["Controller", "FixedController"]


class Controller(Protocol):
    """Chooses from the past alone, so that the law of the text is untouched."""

    def choose(self, limit: int) -> int:
        """n_draft for the next round, 0 … limit."""

    def observe(self, round_: Round) -> None:
        """Learn from a finished round."""


class FixedController:
    """The same n_draft every round, clipped to the room there is."""

    def __init__(self, n_draft: int) -> None:
        self.n_draft = n_draft

    def choose(self, limit: int) -> int:
        """n_draft, or the limit when that is smaller."""
        return min(self.n_draft, limit)

    def observe(self, round_: Round) -> None:
        """A fixed rule learns nothing."""
