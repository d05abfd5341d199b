"""An answer while it grows, and its figures.

Every figure is counted or timed in this answer; the speed-up is against the time that the same
tokens would have taken one by one, by measured costs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from localspec.chat.conversation import Turn
from localspec.chat.thinking import split
from localspec.decoding.events import Round
from localspec.session.marks import Mark, MarkedText

__all__ = ["Figures", "LiveAnswer"]

_RECENT_S = 2.0
_N_HISTORY = 60


class Figures:
    """Feed it rounds; times are seconds of decoding, as the rounds tell them."""

    def __init__(self) -> None:
        self.n_tokens = 0
        self.n_passes = 0
        self.n_accepted = 0
        self.n_rejected = 0
        self.elapsed_s = 0.0
        self.draft_s = 0.0
        self.verify_s = 0.0
        self.n_draft = 0  # of the last round
        self.depth = 0  # committed tokens, prompt included
        self.first_token_s: float | None = None  # from the question to the first text
        self.history: deque[float] = deque(maxlen=_N_HISTORY)  # tokens per second, round by round
        self._plain_s = 0.0
        self._plain_of_s = 0.0  # the decoding time that the estimate covers
        self._recent: deque[tuple[int, float]] = deque()
        self._recent_s = 0.0
        self._recent_n = 0

    def add(self, round_: Round) -> None:
        """Count a round."""
        if not round_.tokens:
            return
        n = sum(token.committed for token in round_.tokens)
        self.n_tokens += n
        self.n_passes += 1
        self.n_accepted += round_.n_accepted
        self.n_rejected += sum(token.verdict == "rejected" for token in round_.tokens)
        self.elapsed_s += round_.elapsed_s
        self.draft_s += round_.draft_s
        self.verify_s += round_.verify_s
        self.n_draft = round_.n_draft
        self.depth = round_.depth + n
        if round_.plain_s is not None:
            self._plain_s += round_.plain_s
            self._plain_of_s += round_.elapsed_s
        self._recent.append((n, round_.elapsed_s))
        self._recent_n += n
        self._recent_s += round_.elapsed_s
        while len(self._recent) > 1 and self._recent_s - self._recent[0][1] >= _RECENT_S:
            old_n, old_s = self._recent.popleft()
            self._recent_n -= old_n
            self._recent_s -= old_s
        self.history.append(self.now)

    @property
    def now(self) -> float:
        """Tokens per second over the last two seconds of decoding."""
        return self._recent_n / self._recent_s if self._recent_s > 0 else 0.0

    @property
    def mean(self) -> float:
        """Tokens per second of decoding so far."""
        return self.n_tokens / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def speed_up(self) -> float | None:
        """Speed over plain decoding, by measured costs.

        None while a plain step was not measured, and while no draft token was accepted or
        rejected: that is plain decoding, and the ratio would only tell how far the measured cost
        of a step is off.
        """
        if self.acceptance is None or self._plain_of_s <= 0:
            return None
        return self._plain_s / self._plain_of_s

    @property
    def acceptance(self) -> float | None:
        """accepted / (accepted + rejected); None while there is neither."""
        n_verified = self.n_accepted + self.n_rejected
        return self.n_accepted / n_verified if n_verified else None

    @property
    def tokens_per_pass(self) -> float:
        """Tokens for each pass of the target."""
        return self.n_tokens / self.n_passes if self.n_passes else 0.0

    @property
    def split(self) -> tuple[float, float, float]:
        """Shares of the time: draft, verification, other."""
        if self.elapsed_s <= 0:
            return (0.0, 0.0, 0.0)
        draft, verify = self.draft_s / self.elapsed_s, self.verify_s / self.elapsed_s
        return draft, verify, max(0.0, 1.0 - draft - verify)


@dataclass(slots=True)
class LiveAnswer:
    """An answer that grows. turn: what it will be; before: the answer that it continues, if any.

    started: seconds by the chat's clock. notes: what the chat adds to the engine's notes.
    """

    turn: Turn
    before: Turn | None
    started: float
    notes: tuple[str, ...] = ()
    figures: Figures = field(default_factory=Figures)
    text: str = ""
    rounds: list[Round] = field(default_factory=list)
    prompt_done: int = 0
    prompt_total: int = 0
    stopping: bool = False
    thinking_since: float | None = None
    thinking_s: float | None = None
    n_saved: int = 0  # characters
    n_saved_rounds: int = 0
    saved_at: float = 0.0
    _marked: MarkedText = field(default_factory=MarkedText)

    def __post_init__(self) -> None:
        before = self.before
        if before is None:
            return
        self.text = before.text
        self.n_saved = len(before.text)
        parts = split(before.text, opened=before.opened)
        if parts.is_open:
            self.thinking_since = self.started - (before.thinking_s or 0.0)
        elif parts.thinking is not None:
            self.thinking_s = before.thinking_s

    @property
    def is_reading(self) -> bool:
        """True until the first round: the prompt is being read."""
        return not self.rounds

    def add(self, round_: Round, now: float) -> list[Mark]:
        """Take in a round; the marks that it adds."""
        self.rounds.append(round_)
        self.figures.add(round_)
        self.text += round_.text
        if round_.text and self.figures.first_token_s is None:
            self.figures.first_token_s = now - self.started
        self._time_thinking(now)
        return self._marked.push(round_)

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

    def _time_thinking(self, now: float) -> None:
        if self.thinking_s is not None:
            return
        parts = split(self.text, opened=self.turn.opened)
        if parts.thinking is None:
            return
        if self.thinking_since is None:
            self.thinking_since = now
        if not parts.is_open:
            self.thinking_s = now - self.thinking_since
