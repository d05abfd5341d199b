"""The default way of drafting on tiny models: the text stays, the drafts follow the costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.control import measured_costs as measuring
from localspec.control.costs import Costs
from localspec.control.economics import COPIES_ALONE
from localspec.decoding.events import Round
from localspec.drafting import draft_cache
from localspec.errors import CancelledError, InvalidOptionError
from localspec.models import stored_costs
from localspec.session import pair as pair_module
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests import tiny_models
from tests.unit.scripted import scripted_costs

GREEDY = {"temperature": 0.0, "max_tokens": 60}
PROMPT = "the and of"
SLOW = 1e3  # scripted seconds dwarf the real ones, so that only the script decides


def flat() -> Costs:
    return scripted_costs(lambda n: SLOW * (1.0 + 0.01 * n), lambda n: SLOW * 0.02)


def steep() -> Costs:
    return scripted_costs(lambda n: SLOW * n, lambda n: SLOW * 0.5)


@pytest.fixture
def priced(pair: Session) -> Iterator[Callable[[Costs], Session]]:
    """The tiny pair with scripted costs."""
    before = pair._measured._costs

    def price(costs: Costs) -> Session:
        pair._measured._costs = costs
        pair.forget()
        pair.clear_cache()
        return pair

    yield price
    pair._measured._costs = before


def rounds(session: Session, **options: object) -> list[Round]:
    found = session.stream(PROMPT, **{**GREEDY, **options})
    return [event for event in found if isinstance(event, Round)]


@pytest.mark.parametrize("drafter", ["auto", "model", "ngram", "splice"])
@pytest.mark.parametrize("costs", [flat, steep])
def test_the_text_is_the_plain_text(
    priced: Callable[[Costs], Session], costs: Callable[[], Costs], drafter: str
) -> None:
    session = priced(costs())
    plain = session.complete(PROMPT, drafter="none", **GREEDY)
    assert session.complete(PROMPT, drafter=drafter, **GREEDY).token_ids == plain.token_ids
    sampled = {"temperature": 1.0, "seed": 3, "max_tokens": 60}
    plain = session.complete(PROMPT, drafter="none", **sampled)
    assert session.complete(PROMPT, drafter=drafter, **sampled).token_ids == plain.token_ids


def test_cheap_drafts_are_long_and_by_both_drafters(priced: Callable[[Costs], Session]) -> None:
    found = rounds(priced(flat()), drafter="splice", max_tokens=150)
    assert max(r.n_draft for r in found) > 8
    sources = {token.source for r in found for token in r.tokens}
    assert {"model", "ngram", "target"} <= sources


def test_where_a_model_cannot_pay_it_is_never_fed(priced: Callable[[Costs], Session]) -> None:
    session = priced(steep())
    result = session.complete(PROMPT, **GREEDY)
    assert session._draft is not None
    assert session._draft.ids == []
    assert result.stats.drafter == "ngram"
    assert any(note.startswith(COPIES_ALONE) for note in result.stats.notes)


def test_a_model_asked_for_by_name_drafts_nothing_where_nothing_pays(
    priced: Callable[[Costs], Session],
) -> None:
    found = rounds(priced(steep()), drafter="model")
    assert {r.n_draft for r in found} == {0}


def test_n_draft_max_bounds_every_draft(priced: Callable[[Costs], Session]) -> None:
    found = rounds(priced(flat()), drafter="splice", n_draft_max=3)
    assert max(r.n_draft for r in found) == 3


def test_n_draft_and_its_bound_exclude_each_other(pair: Session) -> None:
    with pytest.raises(InvalidOptionError, match="give one of them"):
        pair.complete(PROMPT, n_draft=2, n_draft_max=4)


def test_splice_needs_a_draft_model(tiny_target: Path) -> None:
    with Session(tiny_target) as session, pytest.raises(InvalidOptionError, match="splice"):
        session.complete(PROMPT, drafter="splice")


def test_fixed_splices_hold_exactly_n_draft_where_the_model_drafts(pair: Session) -> None:
    found = [r for r in rounds(pair, drafter="splice", n_draft=4) if r.n_draft]
    assert {r.n_draft for r in found[:-1]} <= {1, 2, 3, 4}
    assert max(r.n_draft for r in found) == 4


def test_unseeded_sampling_is_judged_by_the_better_way(loose_pair: Session) -> None:
    loose_pair._measured._costs = flat()
    options = {"temperature": 1.0, "max_tokens": 40, "drafter": "model"}
    loose_pair.complete(PROMPT, **options)
    result = loose_pair.complete(PROMPT, **options)
    ways = {event.verifier for event in loose_pair.stream(PROMPT, **options) if _drafted(event)}
    assert result.stats.verifier in ("block", "match")
    assert ways <= {"block", "match"}
    assert loose_pair._planner.temperature.yields()  # it was learned from
    seeded = loose_pair.complete(PROMPT, **options, seed=5)
    assert seeded.stats.verifier == "match"


def _drafted(event: object) -> bool:
    return isinstance(event, Round) and event.n_draft > 0


def test_costs_are_measured_once_and_then_found(
    tiny_target: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stored_costs, "costs_folder", lambda: tmp_path / "costs")
    with Session(tiny_target, tiny_draft) as session:
        first = session.costs.target.seconds(1)
        assert first > 0
    calls = []
    measure = measuring.measure

    def counting(*args: Any, **options: Any) -> None:
        calls.append(args)
        measure(*args, **options)

    monkeypatch.setattr(measuring, "measure", counting)
    renew = measuring.renew
    for fits in (True, False):  # what a model of microseconds says of its own table is noise
        monkeypatch.setattr(
            measuring, "renew", lambda *a, fits=fits, **k: renew(*a, **k) is None or fits
        )
        with Session(tiny_target, tiny_draft) as session:
            assert session.costs.target.is_measured(8)
        assert len(calls) == (0 if fits else 2)
    calls.clear()
    for file in (tmp_path / "costs").iterdir():
        file.write_text("{broken")
    with Session(tiny_target, tiny_draft) as session:
        assert session.complete(PROMPT, drafter="splice", **GREEDY).text
    assert len(calls) == 2


def test_a_cache_folder_that_cannot_be_written_harms_nothing(
    tiny_target: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setattr(stored_costs, "costs_folder", lambda: blocked / "costs")
    with Session(tiny_target, tiny_draft) as session:
        assert session.complete(PROMPT, **GREEDY).text


def test_a_long_prompt_is_read_by_the_draft_from_its_end(
    tiny_target: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_cache, "PROMPT_WINDOW", 40)
    ids = [tiny_models.FIRST_BYTE + i % 26 for i in range(300)]
    with Session(tiny_target, tiny_draft, LoadOptions(n_ctx=512)) as session:
        session._measured._costs = flat()
        plain = session.complete(ids, drafter="none", **GREEDY).token_ids
        session.clear_cache()
        result = session.complete(ids, drafter="model", **GREEDY)
        assert result.token_ids == plain
        assert session._draft is not None
        assert len(session._draft.ids) < 40 + 60
        assert result.stats.draft_n_accepted > 20


def test_a_full_draft_context_begins_anew_and_goes_on(tiny_target: Path, tiny_draft: Path) -> None:
    with Session(tiny_target, tiny_draft, LoadOptions(n_ctx=256)) as session:
        session._measured._costs = flat()
        ids = [tiny_models.FIRST_BYTE + i % 26 for i in range(200)]
        options = {"temperature": 0.0, "max_tokens": 100}
        plain = session.complete(ids, drafter="none", **options)
        ours = session.complete(ids, drafter="model", **options)
        assert (ours.token_ids, ours.reason) == (plain.token_ids, plain.reason)
        assert ours.reason == "context"


def test_the_next_turn_reuses_what_both_models_have_read(
    priced: Callable[[Costs], Session],
) -> None:
    session = priced(flat())
    first = session.complete(PROMPT, drafter="splice", **GREEDY)
    ids = [*session.encode(PROMPT), *first.token_ids, tiny_models.FIRST_BYTE]
    assert session._draft is not None
    before = list(session._draft.ids)
    second = session.complete(ids, drafter="splice", **GREEDY)
    assert second.stats.cache_n >= len(ids) - 3
    assert session._draft.ids[: len(before) - 1] == before[:-1]
    assert second.token_ids == session.complete(ids, drafter="none", **GREEDY).token_ids


def test_cancelling_while_costs_are_measured_ends_the_answer_cleanly(
    tiny_target: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stored_costs, "costs_folder", lambda: tmp_path)
    measure = measuring.measure
    with Session(tiny_target, tiny_draft) as session:

        def interrupted(*args: Any, **options: Any) -> None:
            session.cancel()
            monkeypatch.setattr(measuring, "measure", measure)
            measure(*args, **options)

        monkeypatch.setattr(measuring, "measure", interrupted)
        result = session.complete(PROMPT, **GREEDY)
        assert result.reason == "cancelled"
        assert session.complete(PROMPT, **GREEDY).reason == "length"


def test_cancelling_a_measurement_is_a_named_error_and_the_next_call_works(
    tiny_target: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stored_costs, "costs_folder", lambda: tmp_path)
    measure = measuring.measure
    with Session(tiny_target, tiny_draft) as session:

        def interrupted(*args: Any, **options: Any) -> None:
            session.cancel()
            measure(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(measuring, "measure", interrupted)
            with pytest.raises(CancelledError):
                _ = session.costs
        assert session.costs.target.is_measured(1)
        assert session.complete(PROMPT, **GREEDY).reason == "length"


def test_another_engine_or_machine_measures_for_itself(
    tiny_target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bits and speeds are true of one build on one machine; a shared home must not mix them."""
    monkeypatch.setattr(stored_costs, "costs_folder", lambda: tmp_path)
    options = LoadOptions(exact=True, n_ctx=256)
    with Session(tiny_target, None, options) as session:
        _ = session.costs
    n_files = len(list(tmp_path.iterdir()))
    assert n_files == 3  # the costs, the exact sizes, and that the file was tried out
    monkeypatch.setattr(pair_module, "engine_identity", lambda: ("another",))
    with Session(tiny_target, None, options) as session:
        _ = session.costs
    assert len(list(tmp_path.iterdir())) == 2 * n_files - 1  # the trial has an identity of its own
