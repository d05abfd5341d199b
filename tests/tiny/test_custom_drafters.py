"""Drafters and controllers of one's own through a whole session."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import localspec
from localspec.cli.main import cli
from localspec.decoding.controller import FixedController
from localspec.decoding.events import Round
from localspec.errors import DrafterError, InvalidOptionError, LocalspecError, PluginError
from localspec.session import plugins
from localspec.session.session import Session
from tests import tiny_models
from tests.tiny.truth import assert_same_text

PROMPT = "the and of"
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40}


class Cycle:
    """Knows what follows in the tiny models."""

    def __init__(self, vocabulary: localspec.Vocabulary | None = None) -> None:
        self.follow = tiny_models.successors(0, 0, "bytes")
        self.n_calls = 0

    def guess(self, ids: Sequence[int], n_max: int) -> list[int]:
        self.n_calls += 1
        found = []
        token = ids[-1]
        while token in self.follow and len(found) < n_max:
            token = self.follow[token]
            found.append(token)
        return found


class Oracle(Cycle):
    def predict(self, ids: Sequence[int]) -> localspec.Distribution:
        return localspec.Distribution.one_hot(self.follow.get(ids[-1], 5))


@pytest.fixture
def plain(pair: Session) -> localspec.Completion:
    return pair.complete(PROMPT, drafter="none", **GREEDY)


@pytest.mark.parametrize("kind", [Cycle, Oracle])
@pytest.mark.parametrize("n_draft", [None, 1, 4])
def test_a_good_drafter_is_accepted_and_the_text_is_the_plain_text(
    pair: Session, plain: localspec.Completion, kind: Any, n_draft: int | None
) -> None:
    result = pair.complete(PROMPT, drafter=kind(), n_draft=n_draft, **GREEDY)
    assert result.token_ids == plain.token_ids
    assert result.stats.drafter == kind.__name__
    if n_draft:
        assert result.stats.draft_n_accepted >= 10
        assert result.stats.acceptance_rate is not None
        assert result.stats.acceptance_rate > 0.9
        sources = {token.source for round_ in result.rounds for token in round_.tokens}
        assert sources == {kind.__name__, "target"}


def test_it_can_be_given_at_load_as_a_class_or_by_call(tiny_target: Path) -> None:
    with localspec.load(tiny_target, drafter=Cycle) as session:
        assert session.complete(PROMPT, n_draft=3, **GREEDY).stats.drafter == "Cycle"
        assert session.complete(PROMPT, drafter="none", **GREEDY).stats.drafter == "none"
    with localspec.load(tiny_target) as session:
        own = Cycle()
        assert session.complete(PROMPT, drafter=own, n_draft=3, **GREEDY).stats.draft_n_accepted
        assert own.n_calls


class Hostile:
    """One way of going wrong, at the fifth call."""

    def __init__(self, wrong: Any) -> None:
        self.wrong, self.n = wrong, 0

    def guess(self, ids: Sequence[int], n_max: int) -> Any:
        self.n += 1
        return self.wrong() if self.n == 5 else [5]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: [10**6],
        lambda: [-1],
        lambda: 1 / 0,
        lambda: "text",
        lambda: [[1]],
        lambda: [None],
        lambda: (_ for _ in ()).throw(RuntimeError("late")),
    ],
)
def test_what_goes_wrong_is_named_and_the_session_lives_on(
    pair: Session, plain: localspec.Completion, wrong: Any
) -> None:
    with pytest.raises(DrafterError, match="the drafter Hostile: guess"):
        pair.complete(PROMPT, drafter=Hostile(wrong), n_draft=2, **GREEDY)
    assert pair.complete(PROMPT, n_draft=3, **GREEDY).token_ids == plain.token_ids


@pytest.mark.parametrize("value", [[5] * 10_000, [0], [1], [2], range(60), None, []])
def test_useless_guesses_are_harmless(
    pair: Session, plain: localspec.Completion, value: Any
) -> None:
    class Useless:
        def guess(self, ids: Sequence[int], n_max: int) -> Any:
            return value

    for n_draft in (1, 63, None):
        result = pair.complete(PROMPT, drafter=Useless(), n_draft=n_draft, **GREEDY)
        assert result.token_ids == plain.token_ids


def test_guesses_up_to_the_very_end_of_the_context(tiny_target: Path) -> None:
    with localspec.load(tiny_target, n_ctx=256) as session:
        plain = session.complete(PROMPT, drafter="none", temperature=0)
        ours = session.complete(PROMPT, drafter=Cycle(), n_draft=63, temperature=0)
        assert (ours.token_ids, ours.reason) == (plain.token_ids, "context")


def test_match_is_chosen_for_guesses_and_keeps_the_seeds_text(loose_pair: Session) -> None:
    options = {"temperature": 1.0, "seed": 7, "max_tokens": 40}
    plain = loose_pair.complete(PROMPT, drafter="none", **options)
    ours = loose_pair.complete(PROMPT, drafter=Cycle(), n_draft=4, **options)
    assert_same_text(
        loose_pair, loose_pair.encode(PROMPT), ours.token_ids, plain.token_ids, **options
    )
    assert ours.stats.verifier == "match"
    assert loose_pair.complete(PROMPT, drafter=Cycle(), max_tokens=5).stats.verifier == "match"


def test_the_controller_learns_about_each_drafter_apart(pair: Session) -> None:
    pair.forget()
    good, bad = Cycle(), Hostile(lambda: [5])
    for _ in range(3):
        pair.complete(PROMPT, drafter=bad, **GREEDY)
    kinds = pair._planner._custom._kinds
    assert pair._planner.experiences[True].copies.rate(8) == pytest.approx(
        localspec.control.expected_value.Experience().copies.rate(8)  # type: ignore[attr-defined]
    )
    pair.complete(PROMPT, drafter=good, **GREEDY)
    assert {kind.name for kind in kinds.values()} >= {"Cycle", "Hostile"}


def test_a_controller_of_ones_own(pair: Session, plain: localspec.Completion) -> None:
    class Eager:
        def __init__(self) -> None:
            self.inner = FixedController(3)
            self.seen: list[Round] = []

        def worth_reading(self, n_tokens: int, n_ahead: int) -> bool:
            return True

        def begin(self, depth: int, limit: int, *, may_trim: bool) -> localspec.Pace:
            return self.inner.begin(depth, limit, may_trim=may_trim)

        def observe(self, round_: Round) -> None:
            self.seen.append(round_)

    mine = Eager()
    result = pair.complete(PROMPT, drafter="model", controller=mine, **GREEDY)
    assert result.token_ids == plain.token_ids
    assert len(mine.seen) == len(result.rounds)
    assert max(round_.n_draft for round_ in result.rounds) == 3
    again = pair.complete(PROMPT, drafter="model", controller=Eager, **GREEDY)
    assert again.token_ids == plain.token_ids


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that offers a good drafter and some bad ones."""
    home = "tests.tiny.test_custom_drafters"
    found = {
        "cycle": f"{home}:Cycle",
        "missing": "no_such_module_anywhere:Thing",
        "no-attribute": f"{home}:Nothing",
        "no-callable": f"{home}:PROMPT",
        "fails": f"{home}:fails",
        "no-drafter": f"{home}:no_drafter",
    }
    entries = {name: EntryPoint(name, value, "localspec.drafters") for name, value in found.items()}
    monkeypatch.setattr(plugins, "_found", lambda kind: entries if kind == "drafters" else {})


def fails(vocabulary: localspec.Vocabulary) -> None:
    raise OSError("no phrases here")


def no_drafter(vocabulary: localspec.Vocabulary) -> int:
    return 5


def test_an_installed_drafter_is_found_by_name(
    pair: Session, plain: localspec.Completion, offered: None
) -> None:
    result = pair.complete(PROMPT, drafter="cycle", n_draft=3, **GREEDY)
    assert result.token_ids == plain.token_ids
    assert result.stats.drafter == "cycle"
    assert result.stats.draft_n_accepted > 5
    with pytest.raises(InvalidOptionError, match="did you mean cycle"):
        pair.complete(PROMPT, drafter="cycel")
    with pytest.raises(InvalidOptionError, match="controller is 'x'"):
        pair.complete(PROMPT, controller="x")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("missing", PluginError, "cannot be imported: ModuleNotFoundError"),
        ("no-attribute", PluginError, "cannot be imported: AttributeError"),
        ("no-callable", PluginError, "must name a callable"),
        ("fails", DrafterError, "could not be made: OSError: no phrases here"),
        ("no-drafter", DrafterError, "made int, which has none of guess"),
    ],
)
def test_a_bad_plugin_is_named(
    pair: Session, offered: None, name: str, error: type[LocalspecError], message: str
) -> None:
    with pytest.raises(error, match=message):
        pair.complete(PROMPT, drafter=name)
    assert pair.complete(PROMPT, max_tokens=1).stats.predicted_n == 1


def test_the_command_finds_it(tiny_target: Path, offered: None) -> None:
    arguments = ["run", "-m", str(tiny_target), "--temp", "0", "-n", "20", "--raw", PROMPT]
    ended = CliRunner().invoke(cli, [*arguments, "--drafter", "cycle", "--n-draft", "3"])
    assert ended.exit_code == 0, ended.output
    assert "of the guesses right" in ended.stderr
    plain = CliRunner().invoke(cli, [*arguments, "--drafter", "none"])
    assert ended.stdout == plain.stdout
    wrong = CliRunner().invoke(cli, [*arguments, "--drafter", "cycel"])
    assert wrong.exit_code != 0
