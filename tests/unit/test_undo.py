"""Where a refusal costs a return and a replay, the controller drafts only what pays for both."""

from __future__ import annotations

import random

import pytest

from localspec.control.costs import Costs, Undo
from localspec.control.economics import best_speed_up, look
from localspec.control.expected_value import ExpectedValueController, Experience
from localspec.decoding.events import Round, RoundToken
from tests.unit.scripted import scripted_costs


def costs_with(undo: Undo | None) -> Costs:
    costs = scripted_costs(lambda n: 0.8 + 0.2 * n, lambda n: 0.1)
    costs.undo = undo
    return costs


class Replaying:
    """A target whose memory goes back to a checkpoint: time is counted as it would pass."""

    def __init__(self, undo: Undo, accuracy: float, seed: int = 0) -> None:
        self.costs = costs_with(undo)
        self.made = ExpectedValueController(self.costs, Experience())
        self.undo, self.accuracy = undo, accuracy
        self.rng = random.Random(seed)
        self.n_replay = self.n_missing = 0
        self.seconds = 0.0
        self.n_tokens = 0
        self.drafts: list[int] = []

    def round(self) -> None:
        pace = self.made.begin(100, 200, may_trim=True, n_replay=self.n_replay)
        guesses: list[float] = []
        draft_s = 0.0
        if pace.source(0, 0, 1 + self.n_missing) == "model":
            while pace.another():
                draft_s += self.costs.draft.seconds(1, 100)
                guesses.append(self.accuracy)
                pace.take(self.accuracy)
        k = min(pace.trim(), len(guesses))
        right = [self.rng.random() < self.accuracy for _ in range(k)]
        a = right.index(False) if False in right else k
        verify_s = self.costs.target.seconds(self.n_replay + k + 1, 100)
        elapsed = draft_s + verify_s + (self.undo.checkpoint_s if k else 0.0)
        if a < k:
            elapsed += self.undo.restore_s
        tokens = tuple(
            RoundToken(
                7,
                b"x",
                "model",
                "accepted" if i < a else "rejected" if i == a else "discarded",
                float(i < a),
                1.0,
                self.accuracy,
                self.accuracy,
            )
            for i in range(k)
        )
        tokens += (
            RoundToken(
                7, b"x", "target", "bonus" if a == k else "correction", 1.0, None, 0.9, None
            ),
        )
        self.made.observe(
            Round(0, k, a, tokens, "", draft_s, verify_s, elapsed, 100, n_replayed=self.n_replay)
        )
        self.n_missing = 0 if guesses else self.n_missing + 1
        self.n_replay = self.n_replay + a + 1 if a < k else 0
        if self.n_replay > 8:
            self.seconds += self.costs.target.seconds(self.n_replay, 100)
            self.n_replay = 0
        self.seconds += elapsed
        self.n_tokens += a + 1
        self.drafts.append(k)

    def speed(self, n_rounds: int) -> float:
        for _ in range(n_rounds):
            self.round()
        return self.n_tokens / self.seconds * self.costs.target.seconds(1, 100)


@pytest.mark.parametrize("undo", [Undo(0.0, 0.0), Undo(0.1, 0.1), Undo(0.5, 0.5), Undo(3.0, 3.0)])
@pytest.mark.parametrize("accuracy", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_never_slower_than_plain(undo: Undo, accuracy: float) -> None:
    assert Replaying(undo, accuracy).speed(600) > 0.96


def test_it_still_gains_where_guesses_are_good() -> None:
    assert Replaying(Undo(0.05, 0.05), 0.97).speed(300) > 1.2


def test_a_checkpoint_that_costs_too_much_is_never_taken() -> None:
    text = Replaying(Undo(20.0, 20.0), 0.99)
    text.speed(50)
    assert set(text.drafts) == {0}


def test_a_return_that_costs_much_makes_drafts_rarer() -> None:
    cheap, dear = Replaying(Undo(0.0, 0.0), 0.75), Replaying(Undo(0.4, 1.5), 0.75)
    cheap.speed(300)
    dear.speed(300)
    assert sum(dear.drafts) < 0.5 * sum(cheap.drafts)


def test_the_outlook_counts_it() -> None:
    free, dear = costs_with(None), costs_with(Undo(0.5, 1.0))
    assert best_speed_up(dear, 0.8) < best_speed_up(free, 0.8)
    assert look(dear).best_ratio < look(free).best_ratio
    assert not look(costs_with(Undo(50.0, 50.0))).pays


def test_what_a_refusal_costs() -> None:
    row = [0.0, 1.0, 1.2, 1.4, 1.6]
    undo = Undo(0.1, 0.2)
    assert undo.seconds(1.0, 3.0, row) == pytest.approx(0.1)
    assert undo.seconds(0.0, 2.0, row) == pytest.approx(0.1 + 0.2 + 0.4)
    assert undo.seconds(0.0, 99.0, row) == pytest.approx(0.1 + 0.2 + 0.6)
