"""The controller against scripted costs and guesses: it drafts what pays, and nothing else."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import pytest

from localspec.control.acceptance import AcceptanceCurve
from localspec.control.costs import Costs
from localspec.control.expected_value import ExpectedValueController, Experience
from localspec.decoding.events import Round, RoundToken
from tests.unit.scripted import scripted_costs

FLAT = scripted_costs(lambda n: 1.0 + 0.01 * n, lambda n: 0.05)  # a GPU
STEEP = scripted_costs(lambda n: float(n), lambda n: 0.5)  # nothing can pay
MIDDLE = scripted_costs(lambda n: 0.8 + 0.2 * n, lambda n: 0.15)


def controller(costs: Costs, n_draft_max: int | None = None) -> ExpectedValueController:
    return ExpectedValueController(costs, Experience(), n_draft_max=n_draft_max)


class Text:
    """Answers as a model pair would: each guess has a confidence and is right at that rate."""

    def __init__(self, made: ExpectedValueController, costs: Costs, seed: int = 0) -> None:
        self.controller, self.costs = made, costs
        self.rng = random.Random(seed)
        self.seconds = 0.0
        self.n_tokens = 0
        self.drafts: list[int] = []
        self.n_missing = 1

    def round(self, confidence: Callable[[], float], target_prob: float = 0.9) -> int:
        pace = self.controller.begin(100, 200, may_trim=True)
        guesses: list[float] = []
        draft_s = 0.0
        if pace.source(0, 0, self.n_missing) == "model":
            while pace.another():
                draft_s += self.costs.draft.seconds(1 if guesses else self.n_missing, 100)
                guesses.append(confidence())
                pace.take(guesses[-1])
        k = min(pace.trim(), len(guesses))
        right = [self.rng.random() < c for c in guesses[:k]]
        a = right.index(False) if False in right else k
        drafted = len(guesses) > 0
        if not drafted:
            self.n_missing += 1
        else:
            self.n_missing = 2 if a == k else 1
        verify_s = self.costs.target.seconds(k + 1, 100)
        tokens = tuple(
            RoundToken(
                7,
                b"x",
                "model",
                "accepted" if i < a else "rejected" if i == a else "discarded",
                float(i < a),
                1.0,
                target_prob,
                guesses[i],
            )
            for i in range(k)
        )
        verdict = "bonus" if a == k else "correction"
        tokens += (RoundToken(7, b"x", "target", verdict, 1.0, None, target_prob, None),)
        elapsed = draft_s + verify_s
        self.controller.observe(Round(0, k, a, tokens, "", draft_s, verify_s, elapsed, 100))
        self.seconds += elapsed
        self.n_tokens += a + 1
        self.drafts.append(k)
        return k

    def speed(self) -> float:
        return self.n_tokens / self.seconds * self.costs.target.seconds(1, 100)


def run(costs: Costs, accuracy: float, n_rounds: int, target_prob: float = 0.9) -> Text:
    text = Text(controller(costs), costs)
    for _ in range(n_rounds):
        text.round(lambda: accuracy, target_prob)
    return text


def best_fixed(costs: Costs, alpha: float) -> float:
    """Speed over plain of the best fixed K, in closed form."""

    def speed(k: int) -> float:
        tokens = sum(alpha**i for i in range(k + 1))
        seconds = costs.target.seconds(k + 1) + (k and k * costs.draft.seconds(1))
        return tokens / seconds * costs.target.seconds(1)

    return max(speed(k) for k in range(17))


def test_where_nothing_can_pay_nothing_is_drafted() -> None:
    text = run(STEEP, accuracy=1.0, n_rounds=50)
    assert set(text.drafts) == {0}
    assert text.speed() == pytest.approx(1.0)


def test_sure_guesses_on_flat_costs_are_drafted_to_the_limit() -> None:
    text = run(FLAT, accuracy=0.995, n_rounds=50)
    assert max(text.drafts[-2:]) == 16
    assert text.speed() > 7


def test_n_draft_max_bounds_the_draft() -> None:
    text = Text(controller(FLAT, n_draft_max=3), FLAT)
    for _ in range(20):
        text.round(lambda: 0.99)
    assert max(text.drafts) == 3
    none = Text(controller(FLAT, n_draft_max=0), FLAT)
    assert none.round(lambda: 0.99) == 0


@pytest.mark.parametrize("costs", [FLAT, MIDDLE, STEEP], ids=["flat", "middle", "steep"])
@pytest.mark.parametrize("accuracy", [0.05, 0.3, 0.5, 0.7, 0.9, 0.98])
def test_near_the_best_fixed_length_and_never_slower_than_plain(
    costs: Costs, accuracy: float
) -> None:
    text = run(costs, accuracy, n_rounds=600, target_prob=accuracy)
    assert text.speed() > 0.97
    assert text.speed() > 0.9 * best_fixed(costs, accuracy)


def test_a_known_confidence_beats_every_fixed_length() -> None:
    rng = random.Random(3)
    text = Text(controller(MIDDLE), MIDDLE, seed=1)
    for _ in range(600):
        text.round(lambda: 0.98 if rng.random() < 0.7 else 0.1)
    assert text.speed() > 1.05 * best_fixed(MIDDLE, 0.7 * 0.98 + 0.3 * 0.1)


def test_it_follows_from_code_to_prose_and_back_within_a_few_rounds() -> None:
    text = Text(controller(MIDDLE), MIDDLE)
    for _ in range(40):
        text.round(lambda: 0.97, target_prob=0.97)
    assert min(text.drafts[-5:]) >= 3
    for _ in range(25):
        text.round(lambda: 0.1, target_prob=0.2)
    assert max(text.drafts[-10:]) <= 1
    for _ in range(25):
        text.round(lambda: 0.97, target_prob=0.97)
    assert min(text.drafts[-5:]) >= 3


def test_a_draft_that_promises_too_much_is_found_out() -> None:
    """Confidence 0.95, right one time in five: the calibration must win over the promise."""
    text = Text(controller(MIDDLE), MIDDLE)
    right = random.Random(5)
    for _ in range(300):
        text.rng = random.Random(right.random())
        text.rng.random = lambda: 0.0 if right.random() < 0.2 else 0.99  # type: ignore[method-assign]
        text.round(lambda: 0.95, target_prob=0.95)
    assert text.speed() > 0.96


@pytest.mark.parametrize(("speed_up", "rests"), [(1.0, True), (1.7, False)])
def test_what_earlier_answers_won_outlasts_one_bad_draft(speed_up: float, rests: bool) -> None:
    """A long draft that fails at the start of an answer costs more than two plain steps."""
    known = Experience(speed_up=speed_up)
    for _ in range(40):
        known.model.observe(0.98, 1.0)
    made = ExpectedValueController(MIDDLE, known)
    text = Text(made, MIDDLE)
    text.rng.random = lambda: 1.0  # type: ignore[method-assign]  # no guess is right
    assert text.round(lambda: 0.98) >= 8
    assert made.may_use("model") is not rests


def test_the_cheap_batch_size_is_preferred() -> None:
    """T(4) below T(3): nobody stops at two tokens when the third row is free."""
    jagged = scripted_costs(
        lambda n: {1: 1.0, 2: 1.5, 3: 2.2, 4: 1.6}.get(n, 1.6 + 0.6 * (n - 4)), lambda n: 0.05
    )
    text = run(jagged, accuracy=0.8, n_rounds=100)
    drafts = text.drafts[20:]
    assert 2 not in drafts
    assert drafts.count(3) > 0.8 * len(drafts)


def test_only_batch_sizes_that_may_be_used_are_used() -> None:
    exact = scripted_costs(lambda n: 1.0 + 0.01 * n, lambda n: 0.05, lambda n: n in (2, 5))
    text = run(exact, accuracy=0.9, n_rounds=100)
    assert set(text.drafts) <= {0, 1, 4}
    assert 4 in text.drafts
    nothing = scripted_costs(lambda n: 1.0, lambda n: 0.05, lambda n: False)
    assert set(run(nothing, accuracy=0.9, n_rounds=20).drafts) == {0}


def test_a_long_rest_is_paid_for_only_when_it_comes_back() -> None:
    """Catching up costs eight target steps: worth it with an answer ahead, not for a few tokens."""
    costly = scripted_costs(lambda n: 1.0 + 0.02 * n, lambda n: 0.05 if n < 8 else 8.0)
    made = controller(costly)
    assert made.begin(100, 200, may_trim=True).source(0, 0, 1) == "model"
    assert made.begin(100, 200, may_trim=True).source(0, 0, 32) == "model"
    assert made.begin(100, 4, may_trim=True).source(0, 0, 32) == "none"


def test_a_copy_is_taken_when_it_promises_more() -> None:
    pace = controller(MIDDLE).begin(100, 200, may_trim=True)
    assert pace.source(24, 30, None) == "ngram"
    assert pace.copy(24, 30) > 8
    short = controller(MIDDLE).begin(100, 200, may_trim=True)
    assert short.source(1, 30, None) == "none"


def test_copies_that_fail_are_left_alone_and_tried_again_later() -> None:
    made = controller(MIDDLE)
    tried = []
    for i in range(400):
        pace = made.begin(100, 200, may_trim=True)
        n = pace.copy(12, 20) if pace.source(12, 20, None) == "ngram" else 0
        tried += [i] if n else []
        refused = tuple(
            RoundToken(7, b"x", "ngram", "discarded" if j else "rejected", 0.0, 1.0, 0.1, None)
            for j in range(n)
        )
        last = RoundToken(8, b"y", "target", "correction", 1.0, None, 0.5, None)
        seconds = MIDDLE.target.seconds(n + 1)
        made.observe(Round(0, n, 0, (*refused, last), "", 0.0, seconds, seconds, 100))
    assert 1 <= len(tried) < 30
    lost = sum(MIDDLE.target.seconds(21) - 1.0 for _ in tried)
    assert lost < 0.2 * 400


def answers(curve: AcceptanceCurve, pairs: Sequence[tuple[float, float]]) -> None:
    for confidence, accepted in pairs:
        curve.observe(confidence, accepted)


def test_a_curve_begins_with_its_prior_and_ends_with_the_truth() -> None:
    curve = AcceptanceCurve((0.5,), lambda x: x)
    assert curve.rate(0.9) == 0.9
    answers(curve, [(0.9, 0.0)] * 100)
    assert curve.rate(0.9) < 0.1
    assert curve.rate(0.2) == 0.2  # another bin
    for _ in range(2000):
        curve.fade(0.997)
    assert curve.rate(0.9) > 0.8


def test_rates_stay_inside_zero_and_one() -> None:
    curve = AcceptanceCurve((), lambda x: x)
    answers(curve, [(0.0, 1.0)] * 100)
    assert 0.0 < curve.rate(1.0) < 1.0
    assert math.isfinite(curve.rate(0.0))


def test_plain_decoding_is_timed_anew_now_and_then() -> None:
    """Its cost is the measure of all gains; while drafts pay, only a plain step can tell it."""
    text = run(FLAT, accuracy=0.99, n_rounds=140)
    plain = [i for i, n in enumerate(text.drafts) if n == 0]
    assert len(plain) >= 3
    gaps = [b - a for a, b in itertools.pairwise(plain)]
    assert max(gaps) <= 33
    assert text.speed() > 7


def test_the_targets_own_token_is_no_accepted_guess_when_a_draft_was_cut() -> None:
    made = controller(FLAT)
    before = made.experience.model.rate(0.05)
    for _ in range(20):
        pace = made.begin(100, 200, may_trim=True)
        assert pace.source(0, 0, 1) == "model"
        pace.take(0.95)
        pace.take(0.05)  # and cut before verification
        kept = RoundToken(7, b"x", "model", "accepted", 1.0, 1.0, 0.9, 0.95)
        bonus = RoundToken(7, b"x", "target", "bonus", 1.0, None, 0.9, None)
        made.observe(Round(0, 1, 1, (kept, bonus), "", 0.02, 1.0, 1.02, 100))
    assert made.experience.model.rate(0.05) == before
