"""Whatever a drafter of one's own returns is used lawfully or named; no models here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from localspec.control.custom_controller import GuardedController
from localspec.decoding.controller import FixedController, FixedPace
from localspec.decoding.draft import Draft
from localspec.decoding.events import Round
from localspec.drafting.custom_drafter import GuardedDrafter, shape_of
from localspec.errors import ControllerError, DrafterError, InvalidOptionError
from localspec.sampling.distribution import Distribution
from localspec.session.options import Options

N_VOCAB = 10


class Says:
    """Returns what it was given, as a guess or as a prediction."""

    def __init__(self, method: str, value: Any) -> None:
        setattr(self, method, lambda *_: value() if callable(value) else value)


def propose(drafter: Any, n_draft: int = 4, rng: np.random.Generator | None = None) -> Draft:
    own = GuardedDrafter(drafter, "mine", N_VOCAB, rng=rng, is_end=lambda token: token == 0)
    return own.propose([1, 2, 3], FixedPace(n_draft))


@pytest.mark.parametrize(
    "value",
    [
        [4, 5],
        (4, 5),
        np.array([4, 5]),
        np.array([4, 5], np.uint8),
        iter([4, 5]),
        [np.int64(4), True + 4],
        range(4, 6),
    ],
)
def test_a_guess_is_judged_as_a_given_token(value: Any) -> None:
    draft = propose(Says("guess", value))
    assert draft.ids == [4, 5]
    assert all(type(token) is int for token in draft.ids)
    assert [q.prob(token) for q, token in zip(draft.q, draft.ids, strict=True)] == [1.0, 1.0]
    assert draft.sources == ["mine", "mine"]


def test_a_guess_that_is_too_long_is_cut() -> None:
    assert propose(Says("guess", [5] * 1000)).ids == [5] * 4
    assert propose(Says("guess", lambda: itertools.repeat(5))).ids == [5] * 4


@pytest.mark.parametrize("value", [[], None, (), np.array([], int)])
def test_no_guess_is_no_draft(value: Any) -> None:
    assert propose(Says("guess", value)).ids == []


def angry() -> Iterator[int]:
    yield 3
    raise ZeroDivisionError("half way")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([10], "returned id 10; the vocabulary has 0 to 9"),
        ([-1], "returned id -1"),
        ([2**70], "returned id 1180591620717411303424"),
        (["a"], "returned no token ids"),
        ("abc", "returned no token ids"),
        ([1.5], "returned no token ids"),
        (7, "returned no token ids"),
        (object(), "returned no token ids"),
        ([[1, 2]], "returned no token ids"),
        (lambda: 1 / 0, "raised ZeroDivisionError"),
        (angry, "returned no token ids"),
    ],
)
def test_a_wrong_guess_is_named(value: Any, message: str) -> None:
    with pytest.raises(DrafterError, match=f"drafter mine: guess {message}"):
        propose(Says("guess", value))


def law(*probs: float) -> Distribution:
    return Distribution(np.arange(len(probs), dtype=np.int32), np.array(probs))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (law(0.5, 0.4), "sum to 0.9"),
        (law(0.5, 0.6), "sum to 1.1"),
        (law(1.5, -0.5), "negative"),
        (law(float("nan"), 1.0), "not finite"),
        (law(0.0, 0.0), "sum to 0"),
        (Distribution(np.array([3, 3], np.int32), np.array([0.5, 0.5])), "do not ascend"),
        (Distribution(np.array([5, 3], np.int32), np.array([0.5, 0.5])), "do not ascend"),
        (Distribution(np.array([3, 10], np.int32), np.array([0.5, 0.5])), "ids outside 0 to 9"),
        (Distribution(np.array([-1, 3], np.int32), np.array([0.5, 0.5])), "ids outside"),
        (Distribution(np.array([3], np.int32), np.array([0.5, 0.5])), "of shape"),
        (Distribution(np.array([], np.int32), np.array([])), "of shape"),
        (np.full(9, 1 / 9), r"shape is \(9,\), not \(10,\)"),
        (np.full((2, 5), 0.1), "shape is"),
        (None, "returned no distribution"),
        ("abc", "returned no distribution"),
        (lambda: [][0], "raised IndexError"),
    ],
)
def test_a_wrong_prediction_is_named(value: Any, message: str) -> None:
    with pytest.raises(DrafterError, match=f"drafter mine: predict .*{message}"):
        propose(Says("predict", value), rng=np.random.default_rng(1))


def test_a_prediction_is_drawn_from_by_localspec_itself() -> None:
    q = np.array([0.0, 0.25, 0.75, *[0.0] * 7])
    rng = np.random.default_rng(1)
    drawn = [propose(Says("predict", q), n_draft=1, rng=rng) for _ in range(2000)]
    assert 0.70 < np.mean([draft.ids == [2] for draft in drawn]) < 0.80
    assert all(draft.q[0].probs.tolist() == [0.25, 0.75] for draft in drawn)
    assert all(draft.q[0].ids.tolist() == [1, 2] for draft in drawn)


def test_without_randomness_the_best_is_taken_and_q_is_one_hot() -> None:
    draft = propose(Says("predict", np.array([0.0, 0.25, 0.75, *[0.0] * 7])))
    assert draft.ids == [2] * 4
    assert draft.is_deterministic


def test_what_was_drawn_from_cannot_be_changed_afterwards() -> None:
    q = law(0.0, 0.5, 0.5)
    draft = propose(Says("predict", q), n_draft=1, rng=np.random.default_rng(1))
    q.probs[:] = 0.0
    assert draft.q[0].probs.tolist() == [0.5, 0.5]


def test_nothing_is_predicted_behind_the_end() -> None:
    assert propose(Says("predict", law(1.0))).ids == [0]


class Rude:
    """Proposes more than it was granted, or what is no draft."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def is_random(self) -> bool:
        return True

    def propose(self, ids: Any, pace: Any) -> Any:
        return self.value(pace)


def drafted(n: int, n_asked: int) -> Any:
    def made(pace: Any) -> Draft:
        pace.source(5, n, None)
        pace.copy(5, n_asked)
        draft = Draft()
        draft.append_copy([4] * n)
        return draft

    return made


def test_a_whole_drafter_is_judged_as_given_and_metered() -> None:
    assert propose(Rude(drafted(3, 3))).ids == [4, 4, 4]
    with pytest.raises(DrafterError, match="returned 3 tokens, but the pace granted 0"):
        propose(Rude(drafted(3, 0)))
    with pytest.raises(DrafterError, match="returned 9 tokens, but the pace granted 4"):
        propose(Rude(drafted(9, 9)))
    with pytest.raises(DrafterError, match="returned list, not a Draft"):
        propose(Rude(lambda pace: [4]))


def test_a_lie_about_q_is_not_believed() -> None:
    def lie(pace: Any) -> Draft:
        assert pace.take(0.5)
        draft = Draft()
        draft.append(4, law(0.99, 0.01), None, "model")
        return draft

    draft = propose(Rude(lie))
    assert draft.q[0].prob(4) == 1.0
    own = GuardedDrafter(Rude(lie), "mine", N_VOCAB, rng=np.random.default_rng(1), is_end=bool)
    assert not own.is_random  # it says so itself, and is not believed


def test_the_engines_own_list_is_out_of_reach() -> None:
    class Vandal:
        def guess(self, ids: Any, n_max: int) -> list[int]:
            ids.append(3)
            return []

    with pytest.raises(DrafterError, match="AttributeError"):
        propose(Vandal())


def test_a_failure_to_settle_is_told_at_the_next_draft() -> None:
    class Broken:
        def guess(self, ids: Any, n_max: int) -> list[int]:
            return [1]

        def settle(self, ids: Any) -> None:
            raise ValueError("lost")

    own = GuardedDrafter(Broken(), "mine", N_VOCAB, rng=None, is_end=bool)
    own.settle([1])
    with pytest.raises(DrafterError, match="settle raised ValueError: lost"):
        own.propose([1], FixedPace(2))
    assert own.propose([1], FixedPace(2)).ids == [1]


def test_shapes() -> None:
    assert shape_of(Says("guess", 1)) == "guess"
    assert shape_of(Says("predict", 1)) == "predict"
    assert shape_of(Rude(1)) == "propose"
    assert shape_of(Rude) is None
    assert shape_of("model") is None


@pytest.mark.parametrize("drafter", [5, None, object(), ["ngram"]])
def test_what_is_no_drafter_is_refused_with_the_options(drafter: Any) -> None:
    with pytest.raises(InvalidOptionError, match="drafter is"):
        Options(drafter=drafter)


def test_what_is_no_controller_is_refused_with_the_options() -> None:
    with pytest.raises(InvalidOptionError, match="controller is int"):
        Options(controller=5)
    with pytest.raises(InvalidOptionError, match="leave out the controller"):
        Options(controller=FixedController(2), n_draft=3)


class HostileController:
    """Wants everything, whatever the limit."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "source": "ngram", "another": True, "take": True, "copy": 10**9, "trim": 10**9,
            "worth": (), "decoded": None, **answers,
        }  # fmt: skip

    def worth_reading(self, n_tokens: int, n_ahead: int) -> bool:
        return True

    def begin(self, depth: int, limit: int, *, may_trim: bool) -> Any:
        return self

    def observe(self, round_: Round) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        found = self.answers[name]

        def answer(*_: Any) -> Any:
            if isinstance(found, Exception):
                raise found
            return found

        return answer


def test_a_controller_cannot_exceed_the_room() -> None:
    pace = GuardedController(HostileController(), "mine").begin(10, 3, may_trim=True)
    assert pace.copy(5, 100) == 3
    assert pace.copy(5, 100) == 0
    assert not pace.another()
    assert not pace.take(1.0)
    assert pace.trim() == 3


def test_a_controller_cannot_use_sizes_that_exact_mode_forbids() -> None:
    controller = GuardedController(HostileController(), "mine", lambda n: n in (1, 3))
    pace = controller.begin(10, 8, may_trim=True)
    assert pace.copy(5, 100) == 8
    assert pace.trim() == 2


@pytest.mark.parametrize(
    ("method", "answer", "arguments"),
    [
        ("source", "magic", (1, 1, 1)),
        ("copy", "many", (1, 1)),
        ("copy", 1.5, (1, 1)),
        ("trim", None, ()),
        ("worth", ["a"], ()),
        ("take", ZeroDivisionError("x"), (0.5,)),
        ("another", ValueError("x"), ()),
        ("decoded", ValueError("x"), (1, 1, 0.1)),
    ],
)
def test_senseless_answers_of_a_controller_are_named(
    method: str, answer: Any, arguments: tuple[Any, ...]
) -> None:
    controller = GuardedController(HostileController(**{method: answer}), "mine")
    with pytest.raises(ControllerError):
        getattr(controller.begin(10, 3, may_trim=True), method)(*arguments)


def test_a_controller_without_a_method_is_named() -> None:
    class Empty:
        def begin(self, depth: int, limit: int, *, may_trim: bool) -> object:
            return object()

    pace = GuardedController(Empty(), "mine").begin(1, 3, may_trim=True)  # type: ignore[arg-type]
    with pytest.raises(ControllerError, match="AttributeError"):
        pace.another()
