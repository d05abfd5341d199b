"""The answer while it grows: its tokens, where it ends, and which of its text may be shown.

Text comes out once nothing that follows can change or withdraw it: whole characters, and no stop
string. Knows nothing of models, distributions or drafting.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from localspec.decoding.events import Reason, RoundToken
from localspec.decoding.logprobs import TokenLogprob
from localspec.sampling.constraint import Constraint

__all__ = ["Answer", "Limits", "TextRelease"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an answer ends besides the model's own end: budget, stop strings, stop ids.

    Before min_tokens of it neither the model's end nor a stop id may come.
    """

    max_tokens: int
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0


class Answer:
    """The tokens that are committed: `ids` holds the prompt's, then the answer's.

    is_eog: is this id the model's own end of the answer? n_ctx: tokens that the context holds.
    constraint: moved along with every committed token.
    """

    def __init__(
        self,
        limits: Limits,
        n_ctx: int,
        is_eog: Callable[[int], bool],
        constraint: Constraint | None = None,
    ) -> None:
        self.ids: list[int] = []
        self.n_prompt = 0
        self.n_accepted = 0  # draft tokens that are in the answer
        self.logprobs: list[TokenLogprob] = []
        self._limits = limits
        self._n_ctx = n_ctx
        self._is_eog = is_eog
        self._constraint = constraint
        self._release = TextRelease(limits.stop)
        self._starts: list[int] = []  # characters of text before each answer token
        self._was_drafted: list[bool] = []  # was each answer token an accepted draft token?
        self._text: list[str] = []

    def begin(self, prompt_ids: Sequence[int]) -> None:
        """Stand behind the prompt."""
        self.ids[:] = prompt_ids
        self.n_prompt = len(prompt_ids)

    @property
    def n_tokens(self) -> int:
        """Tokens of the answer."""
        return len(self.ids) - self.n_prompt

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Tokens of the answer."""
        return tuple(self.ids[self.n_prompt :])

    @property
    def text(self) -> str:
        """What was released so far."""
        return "".join(self._text)

    @property
    def n_left(self) -> int:
        """Tokens that the budget leaves."""
        return self._limits.max_tokens - self.n_tokens

    def over_at_once(self) -> Reason | None:
        """Why nothing is generated, where the options leave no room for a token."""
        if self._constraint is not None and self._constraint.committed.must_end:
            return "eos"
        return "length" if self._limits.max_tokens == 0 else None

    def is_complete(self) -> bool | None:
        """Whether the text is a whole sentence of the grammar; None without one."""
        if self._constraint is None:
            return None
        return self._constraint.committed.may_end and not self._release.stopped

    def commit(self, tokens: Sequence[RoundToken]) -> tuple[list[RoundToken], str, Reason | None]:
        """Append the tokens of a round that were kept, clipped at the first end.

        Returns the tokens, those behind the end `discarded`, the text that may be shown now, and
        the reason when the answer is over. A draft token that ends the answer is no part of it,
        and is discarded too.
        """
        released: list[str] = []
        clipped: list[RoundToken] = []
        ended: Reason | None = None
        for token in tokens:
            if ended is None and token.committed:
                ended = self._end_at(token.id)
                if ended is None:
                    ended = self._append(token, released)
                elif token.verdict == "accepted":
                    token = replace(token, verdict="discarded", logprob=None)
            elif ended is not None:
                token = replace(token, verdict="discarded", logprob=None)
            clipped.append(token)
        self._text += released
        return clipped, "".join(released), ended

    def flush(self, ended: Reason) -> str:
        """What was held back, at the end of the answer."""
        tail = self._release.flush(is_cut=ended in ("length", "context", "cancelled"))
        self._text.append(tail)
        return tail

    def _end_at(self, token: int) -> Reason | None:
        """The reason when this token is the end of the answer, and no part of it."""
        if self._is_eog(token):
            return "eos"
        return "stop" if token in self._limits.stop_ids else None

    def _append(self, token: RoundToken, released: list[str]) -> Reason | None:
        """Commit one token; the reason when the answer ends behind it."""
        self.ids.append(token.id)
        self._starts.append(self._release.n_seen)
        self._was_drafted.append(token.verdict == "accepted")
        self.n_accepted += self._was_drafted[-1]
        if token.logprob is not None:
            self.logprobs.append(token.logprob)
        if self._constraint is not None:
            self._constraint.commit(token.id)
        released.append(self._release.push(token.piece))
        if self._release.stopped:
            self._drop_withheld()
            return "stop"
        if self._constraint is not None and self._constraint.committed.must_end:
            return "eos"
        if self.n_left <= 0:
            return "length"
        return "context" if len(self.ids) > self._n_ctx else None

    def _drop_withheld(self) -> None:
        """Take back the tokens of which nothing is left in the text before the stop string."""
        while self._starts and self._starts[-1] >= self._release.n_released:
            self._starts.pop()
            self.ids.pop()
            self.n_accepted -= self._was_drafted.pop()
            if self.logprobs:
                self.logprobs.pop()


class TextRelease:
    """Incremental UTF-8 decoding with stop strings held back while they may complete."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.n_released = 0
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """Text that became final with this piece. Sets `stopped` at a complete stop string."""
        return self._release(self._decoder.decode(piece))

    def flush(self, *, is_cut: bool = False) -> str:
        """What was held back at the end.

        is_cut: the answer would have gone on, so that half a character at its end is left out;
        where the model itself ended there, it becomes one U+FFFD.
        """
        if self.stopped:
            return ""
        text = "" if is_cut else self._release(self._decoder.decode(b"", final=True))
        if not self.stopped:
            self.n_released += len(self._held)
            text, self._held = text + self._held, ""
        return text

    @property
    def n_seen(self) -> int:
        """Characters decoded so far that are released or held."""
        return self.n_released + len(self._held)

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        held = self._held + text
        found = [at for at in (held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            self._held = ""
            released = held[: min(found)]
        else:
            n = self._n_possible_stop(held)
            released, self._held = held[: len(held) - n], held[len(held) - n :]
        self.n_released += len(released)
        return released

    def _n_possible_stop(self, text: str) -> int:
        """Length of the longest suffix of `text` that begins a stop string."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for n in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[len(text) - n :]) for stop in self._stops):
                return n
        return 0
