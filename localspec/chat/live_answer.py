"""An answer while it grows."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.chat.conversation import Turn
from localspec.chat.figures import Figures
from localspec.chat.thinking import split
from localspec.decoding.events import Round
from localspec.session.marks import MarkedText

__all__ = ["Live"]


@dataclass(slots=True)
class Live:
    """An answer that grows. `turn` is where it will stand; before: what it continues.

    notes: what is to be said about it besides what the engine says.
    """

    turn: Turn
    before: Turn | None
    started: float
    figures: Figures = field(default_factory=Figures)
    marked: MarkedText = field(default_factory=MarkedText)
    text: str = ""
    rounds: list[Round] = field(default_factory=list)
    prompt_done: int = 0
    prompt_total: int = 0
    stopping: bool = False
    thinking_since: float | None = None
    thinking_s: float | None = None
    n_saved: int = 0
    n_saved_rounds: int = 0
    saved_at: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def is_reading(self) -> bool:
        """True until the first round: the prompt is being read."""
        return not self.rounds

    def go_on_thinking(self, before: Turn) -> None:
        """Count on from the thinking of the answer that is continued."""
        parts = split(before.text, opened=before.opened)
        if parts.is_open:
            self.thinking_since = self.started - (before.thinking_s or 0.0)
        elif parts.thinking is not None:
            self.thinking_s = before.thinking_s

    def thought_s(self, now: float) -> float | None:
        """Seconds of thinking, whether it has come to its end or not; None without any."""
        if self.thinking_s is None and self.thinking_since is not None:
            return now - self.thinking_since
        return self.thinking_s

    def committed_ids(self) -> tuple[int, ...]:
        """The tokens of the answer, those that it continues included."""
        before = self.before.token_ids if self.before else ()
        made = [token.id for round_ in self.rounds for token in round_.tokens if token.committed]
        return (*before, *made)
