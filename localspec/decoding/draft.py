"""A draft: the tokens proposed in one round, and from which distribution each was drawn.

The engine takes any Drafter and never asks where it comes from; a Pace decides how far it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from localspec.decoding.controller import Pace
from localspec.sampling.distribution import Distribution
from localspec.sampling.raw_law import Top

__all__ = ["Draft", "Drafter"]


@dataclass(frozen=True, slots=True)
class Draft:
    """K proposed ids, their q, raw probabilities under the draft model, and who proposed each.

    q_top: the draft model's most probable tokens at each position, None where they are not kept.
    """

    ids: list[int] = field(default_factory=list)
    q: list[Distribution] = field(default_factory=list)
    q_raw: list[float | None] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    q_top: list[Top | None] = field(default_factory=list)

    @property
    def is_deterministic(self) -> bool:
        """True when every q is one-hot, so that the draft was no random choice."""
        return all(len(q.ids) == 1 for q in self.q)

    def append(
        self,
        token: int,
        q: Distribution,
        q_raw: float | None,
        source: str,
        q_top: Top | None = None,
    ) -> None:
        """Propose one more token."""
        self.ids.append(token)
        self.q.append(q)
        self.q_raw.append(q_raw)
        self.sources.append(source)
        self.q_top.append(q_top)

    def append_copy(self, tokens: Sequence[int], source: str = "ngram") -> None:
        """Propose a span copied from the text, or forced by a grammar; its q is one-hot."""
        for token in tokens:
            self.append(token, Distribution.one_hot(token), None, source)

    def cut(self, n: int) -> None:
        """Keep the first n tokens. Lawful where the draft was no random choice."""
        for column in (self.ids, self.q, self.q_raw, self.sources, self.q_top):
            del column[n:]


class Drafter(Protocol):
    """Anything that can propose what follows."""

    @property
    def is_random(self) -> bool:
        """True when the next draft may hold tokens drawn at random: it must not be cut then."""

    def prepare(self, ids: Sequence[int], worth_reading: Callable[[int], bool]) -> None:
        """Read the prompt before the first round, so that prefill is timed apart.

        worth_reading: whether a model should read so many tokens in advance.
        """

    def propose(self, ids: Sequence[int], pace: Pace) -> Draft:
        """Tokens to follow `ids`, the committed tokens; none when the pace says so."""

    def learn(self, p: Sequence[Distribution]) -> None:
        """p[i]: the target's law at the i-th drafted position, up to the one that broke."""

    def settle(self, ids: Sequence[int]) -> None:
        """Forget what did not become part of the committed `ids`."""
