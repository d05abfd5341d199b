"""Drafts as much as pays, down to nothing: the most expected tokens per second.

With ρ the tokens per second of late (Dinkelbach's ratio, never below plain decoding), a draft of
K tokens is worth

    Σ_{i≤K} Π_{j≤i} α_j  −  ρ · (time of the draft + T(K+1) − T(1))

tokens more than a plain step. Where the target's memory cannot be cut, T(K+1) has with it what a
refusal would cost, times its chance, and the tokens that the batch must begin with. α_j is
calibrated online for each source of draft tokens, T and D are the measured tables. Before a row of
the draft model is seen its α is what the last rows promise; afterwards it is what its confidence
promises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from localspec.control.acceptance import AcceptanceCurve
from localspec.control.costs import Costs
from localspec.control.economics import best_speed_up
from localspec.decoding.controller import Source
from localspec.decoding.events import Round

__all__ = ["ExpectedValueController", "ExpectedValuePace", "Experience"]

N_DRAFT_MAX = 16
N_COPY_MAX = 32
_RECENT = 0.93  # weight of the past in ρ, per round
_HEAD_START = 8.0  # plain steps of time that stand for the answers before this one
_SPEED_STEP = 0.02
_ALPHA_STEP = 0.12
_FADE = 0.997  # evidence grows old, per round, so that what stopped paying is tried again
_SURE_COPY = 8  # shorter matches do not forestall a draft model that pays
_PLAIN_EVERY = 32  # rounds after which one plain step tells anew what plain decoding costs
_MARGIN = 0.05  # tokens that a draft must promise: costs and rates are estimates
_LONG_GAP = 3  # from here on a catch-up is an investment, spread over the answer
_LEAST_AHEAD = 48
_USUAL_ANSWER = 200  # tokens that the reading of a prompt is set against
_PATIENCE = 2.0  # tokens that a kind of draft may lose before it rests, halved each time
_LEAST_PATIENCE = 0.25
_CREDIT = 6.0  # tokens won that losses are set against: a long draft may fail once
_SHORTEST_REST, _LONGEST_REST = 16, 512
_OUTLOOK = 4  # lengths beyond the draft that worth() looks at
_NEWS = 0.2  # so much more promise than when the rest began ends it


def _model_prior(confidence: float) -> float:
    return confidence + 0.4 * confidence * (1.0 - confidence)


def _copy_prior(match_length: float) -> float:
    return float(0.9 * (1.0 - 0.85**match_length))


def _idle_prior(target_prob: float) -> float:
    return min(0.99, target_prob)


def _curve_of_models() -> AcceptanceCurve:
    return AcceptanceCurve((0.3, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99), _model_prior)


@dataclass(slots=True)
class _Rest:
    """A kind of draft that lost more than it won sits out, longer each time."""

    balance: float = 0.0
    left: int = 0
    next: int = _SHORTEST_REST
    patience: float = _PATIENCE
    promise: float = 1.0  # of the next token, when the rest began

    def settle(self, gain: float, invested: float, promise: float) -> None:
        """Count what a round won or lost against plain steps, in tokens."""
        self.balance = min(_CREDIT, self.balance + gain)
        if self.balance < -self.patience - invested:
            self.left, self.balance, self.promise = self.next, 0.0, promise
            self.next = min(2 * self.next, _LONGEST_REST)
            self.patience = max(_LEAST_PATIENCE, self.patience / 2)
        elif self.balance >= _PATIENCE:
            self.next, self.patience = _SHORTEST_REST, _PATIENCE

    def is_over(self, promise: float) -> bool:
        return self.left <= 0 or promise > self.promise + _NEWS


@dataclass(slots=True)
class Experience:
    """What was learned about a pair; it outlives the answer.

    model, copies: α of a drafted token by the draft's top probability, by match length. idle: α
    of the draft model by the target's own probability of the token, known without any draft.
    alpha: what the draft model's next tokens promise. speed_up: over plain decoding, of late.
    """

    model: AcceptanceCurve = field(default_factory=_curve_of_models)
    copies: AcceptanceCurve = field(
        default_factory=lambda: AcceptanceCurve((2, 3, 4, 5, 7, 10, 16, 32), _copy_prior)
    )
    idle: AcceptanceCurve = field(
        default_factory=lambda: AcceptanceCurve((0.2, 0.4, 0.6, 0.8, 0.95, 0.99), _idle_prior)
    )
    alpha: float = 0.7
    speed_up: float = 1.3


class ExpectedValueController:
    """The default controller; make one for each answer.

    n_draft_max: most tokens of one draft; None is 16 for the model and 32 for copies.
    """

    def __init__(
        self, costs: Costs, experience: Experience, *, n_draft_max: int | None = None
    ) -> None:
        self.costs = costs
        self.experience = experience
        experience.alpha = max(experience.alpha, 0.7)
        self._n_model = N_DRAFT_MAX if n_draft_max is None else n_draft_max
        self._n_copy = N_COPY_MAX if n_draft_max is None else n_draft_max
        plain = costs.target.seconds(1)
        self._seconds = _HEAD_START * plain
        self._tokens = _HEAD_START * experience.speed_up
        self._n_answered = 0
        self._since_plain = 0
        self._pace: ExpectedValuePace | None = None
        self._last_began: str | None = None
        won = min(_CREDIT, _HEAD_START * max(0.0, experience.speed_up - 1.0))
        self._rests: dict[str, _Rest] = {"model": _Rest(won), "ngram": _Rest()}

    def worth_reading(self, n_tokens: int, n_ahead: int) -> bool:
        """Does the draft model's help with the answer outweigh its reading of the prompt?"""
        speed_up = best_speed_up(self.costs, self.experience.alpha)
        plain = self.costs.target.seconds(1)
        gain = min(n_ahead, _USUAL_ANSWER) * plain * (1.0 - 1.0 / speed_up)
        return gain > self.costs.draft.seconds(n_tokens)

    def begin(
        self, depth: int, limit: int, *, may_trim: bool, n_replay: int = 0
    ) -> ExpectedValuePace:
        """The pace of one round, priced at this depth."""
        most = max(0, min(limit, max(self._n_model, self._n_copy)))
        if self._since_plain >= _PLAIN_EVERY:
            most = 0
        verify = self.costs.verify_row(depth - n_replay, most + 1 + n_replay)
        plain = 1.0 / verify[1]
        recent = self._tokens / self._seconds
        self._pace = ExpectedValuePace(
            self,
            verify,
            self.costs.draft.row(depth, 4),
            max(plain, recent),
            depth,
            min(most, self._n_model),
            min(most, self._n_copy),
            limit,
            may_trim=may_trim,
            n_replay=n_replay,
        )
        return self._pace

    def may_use(self, source: str) -> bool:
        """False while this kind of draft sits out."""
        promise = self.experience.alpha if source == "model" else 0.0
        return self._rests[source].is_over(promise)

    def tokens_ahead(self, limit: int) -> float:
        """How many more tokens an investment may be spread over."""
        return min(limit, max(_LEAST_AHEAD, self._n_answered))

    def observe(self, round_: Round) -> None:
        """Update T, ρ, the curves and the rests."""
        assert self._pace is not None
        pace, known = self._pace, self.experience
        n = round_.n_draft
        n_again = round_.n_replayed
        self.costs.target.observe(n_again + n + 1, round_.depth - n_again, round_.verify_s)
        self._since_plain = self._since_plain + 1 if n else 0
        committed = [token for token in round_.tokens if token.committed]
        self._tokens = self._tokens * _RECENT + len(committed)
        self._seconds = self._seconds * _RECENT + round_.elapsed_s
        self._n_answered += len(committed)
        known.speed_up += _SPEED_STEP * (
            self._tokens / self._seconds / pace.plain_rate - known.speed_up
        )
        for rest in self._rests.values():
            rest.left -= len(committed)
        for curve in (known.model, known.copies, known.idle):
            curve.fade(_FADE)
        self._learn(round_)
        gain = len(committed) - round_.elapsed_s * pace.plain_rate
        if pace.began != "none":  # also when the draft was cut to nothing
            invested = pace.invested * pace.plain_rate
            self._rests[pace.began].settle(gain, invested, self.experience.alpha)
            self._last_began = pace.began
        elif n_again and self._last_began is not None:  # a plain step paid for an earlier refusal
            self._rests[self._last_began].settle(gain, 0.0, self.experience.alpha)

    def _learn(self, round_: Round) -> None:
        pace, known = self._pace, self.experience
        assert pace is not None
        spoke = False
        drafted = round_.tokens[: round_.n_draft]  # a draft may have been cut after it was weighed
        for token, feature, kind in zip(drafted, pace.features, pace.kinds, strict=False):
            if token.verdict == "discarded":
                break
            # min(1, p/q) is the chance that this token had, whatever the coin said
            accepted = min(1.0, token.p / token.q) if token.q else float(token.p > 0)
            if kind == "ngram":
                known.copies.observe(feature, accepted)
                continue
            spoke = True
            known.model.observe(feature, accepted)
            verified = token if token.verdict == "accepted" else round_.tokens[-1]
            known.idle.observe(verified.p_raw, accepted)
        if not spoke:
            for token in round_.tokens:
                if token.committed:
                    self.expect(known.idle.rate(token.p_raw))

    def expect(self, alpha: float) -> None:
        """Move the promise of the next unseen row."""
        self.experience.alpha += _ALPHA_STEP * (alpha - self.experience.alpha)


class ExpectedValuePace:
    """One round. `_value[n]` is the expected worth of stopping with n drafted tokens."""

    def __init__(
        self,
        controller: ExpectedValueController,
        verify: list[float],
        draft: list[float],
        rho: float,
        depth: int,
        n_model: int,
        n_copy: int,
        limit: int,
        *,
        may_trim: bool,
        n_replay: int = 0,
    ) -> None:
        self._controller = controller
        self._known = controller.experience
        self._verify = verify
        self._n_replay = n_replay
        self._undo = controller.costs.undo
        self._step = draft[1]
        self._rho = rho
        self._depth = depth
        self._n_model = n_model
        self._n_copy = n_copy
        self._limit = limit
        self._may_trim = may_trim
        self.plain_rate = 1.0 / verify[1]
        self.invested = 0.0  # seconds of catch-up beyond an ordinary step
        self.began: Source = "none"
        self.features: list[float] = []
        self.kinds: list[Source] = []  # of each drafted token
        self._chance = 1.0  # that every token so far is accepted
        self._tokens = 0.0  # expected accepted tokens
        self._last = self._known.alpha
        self._value = [-rho * verify[1 + n_replay]]

    def source(self, match_length: int, n_available: int, n_missing: int | None) -> Source:
        """Whoever promises more than a plain step, or nobody."""
        best: Source = "none"
        value = least = self._value[0] + _MARGIN
        if n_available and self._controller.may_use("ngram"):
            copy_value, n = self._copy_value(match_length, n_available)
            if n and copy_value > value:
                best, value = "ngram", copy_value
        if n_missing is not None and self._controller.may_use("model"):
            model_value = self._first_value(n_missing)
            if match_length < _SURE_COPY:  # the model may go first and the copy follow
                value = least
            if model_value > value:
                best = "model"
        self.began = best
        return best

    def another(self) -> bool:
        """True when going on promises more than stopping at the best length so far."""
        if len(self.features) >= self._n_model:
            return False
        return not self.features or self._onward(len(self.features)) > self._stop_value()

    def take(self, confidence: float) -> bool:
        """True when the token pays a row, or when the draft may be cut later anyway."""
        alpha = self._known.model.rate(confidence)
        self._controller.expect(alpha)
        if not self._may_trim:
            n = len(self.features) + 1
            tokens = self._tokens + self._chance * alpha
            stop = tokens - self._rho * self._price(n, self._chance * alpha, tokens)
            onward = self._onward(n, tokens, self._chance * alpha)
            if max(stop, onward) <= self._value[-1]:
                return False
        self._last = alpha
        self._push("model", confidence, alpha)
        return True

    def copy(self, match_length: int, n_available: int) -> int:
        """The best length of the copy, 0 when the model promises more."""
        value, n = self._copy_value(match_length, n_available)
        if n == 0 or value <= self._stop_value():
            return 0
        if self.features and self._onward(len(self.features)) > value:
            return 0
        for j in range(n):
            self._push("ngram", match_length + j, self._known.copies.rate(match_length + j))
        return n

    def trim(self) -> int:
        """The length of the greatest worth."""
        return self._value.index(max(self._value))

    def worth(self) -> tuple[float, ...]:
        """What was seen, then what the next tokens of the draft model promise, a few further."""
        values = list(self._value)
        tokens, chance, cost = self._tokens, self._chance, 0.0
        if self.began != "ngram":
            for n in range(len(values), min(len(values) + _OUTLOOK, self._n_model + 1)):
                chance *= self._known.alpha
                tokens += chance
                cost += self._step
                values.append(tokens - self._rho * (cost + self._price(n, chance, tokens)))
        return tuple(value - values[0] for value in values)

    def decoded(self, n_tokens: int, depth: int, seconds: float) -> None:
        """Keep D fresh."""
        self._controller.costs.draft.observe(n_tokens, depth, seconds)

    def _push(self, kind: Source, feature: float, alpha: float) -> None:
        self.kinds.append(kind)
        self.features.append(feature)
        self._chance *= alpha
        self._tokens += self._chance
        price = self._price(len(self.features), self._chance, self._tokens)
        self._value.append(self._tokens - self._rho * price)

    def _price(self, n: int, chance: float, tokens: float) -> float:
        """Seconds of verifying n drafted tokens, of which `tokens` are expected to be accepted."""
        seconds = self._verify[self._n_replay + n + 1]
        if self._undo is not None:
            seconds += self._undo.seconds(chance, self._n_replay + tokens + 1.0, self._verify)
        return seconds

    def _stop_value(self) -> float:
        return max(self._value) if self._may_trim else self._value[-1]

    def _onward(
        self, n: int, tokens: float | None = None, chance: float | None = None, first: float = 0.0
    ) -> float:
        """The best worth of n + 1, n + 2, … tokens, drafted by the model from here on.

        first: seconds of the next draft decode beyond an ordinary step.
        """
        tokens = self._tokens if tokens is None else tokens
        chance = self._chance if chance is None else chance
        alpha = 0.5 * (self._known.alpha + self._last)
        best = -math.inf
        cost = first
        for m in range(n + 1, self._n_model + 1):
            chance *= alpha
            tokens += chance
            cost += self._step
            best = max(best, tokens - self._rho * (cost + self._price(m, chance, tokens)))
            alpha = self._known.alpha
        return best

    def _first_value(self, n_missing: int) -> float:
        """The worth of beginning with the model; a long catch-up is spread over the answer."""
        table = self._controller.costs.draft
        extra = max(0.0, table.seconds(max(1, n_missing), self._depth) - self._step)
        if n_missing < _LONG_GAP:
            return self._onward(0, first=extra)
        self.invested = extra
        value = self._onward(0)
        gain = value - self._value[0]
        rounds = self._controller.tokens_ahead(self._limit) / (1.0 + self._expected_run())
        if gain * rounds <= self._rho * extra:
            return -math.inf
        return value

    def _expected_run(self) -> float:
        alpha = self._known.alpha
        return alpha / (1.0 - alpha) if alpha < 0.9 else 9.0

    def _copy_value(self, match_length: int, n_available: int) -> tuple[float, int]:
        n = len(self.features)
        tokens, chance = self._tokens, self._chance
        best, best_n = -math.inf, 0
        for j in range(min(n_available, self._n_copy - n)):
            chance *= self._known.copies.rate(match_length + j)
            tokens += chance
            value = tokens - self._rho * self._price(n + j + 1, chance, tokens)
            if value > best:
                best, best_n = value, j + 1
        return best, best_n
