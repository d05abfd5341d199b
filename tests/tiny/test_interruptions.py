"""An answer that is stopped anywhere, in any way: the next one is as from a cold session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.decoding.events import Finished, Round
from localspec.errors import EngineError
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests.tiny.faults import Boom, Faults
from tests.tiny.truth import Truth, write

KINDS = ("attention", "window", "mamba", "jamba")
PROMPT = [1, *range(266, 306)]
OPTIONS: dict[str, Any] = {"temperature": 0.0, "max_tokens": 14, "n_draft": 3}
LOAD = LoadOptions(n_ctx=256, n_batch=16)  # the prompt is read in three pieces


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def session(tiny_dir: Path, kind: str) -> Iterator[Session]:
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, noise=0.1), LOAD) as session:
        yield session


@pytest.fixture(scope="module")
def truth(tiny_dir: Path, kind: str) -> Iterator[Truth]:
    truth = Truth(write(tiny_dir, kind))
    yield truth
    truth.session.close()


def check(session: Session, truth: Truth) -> None:
    """The same prompt, one that continues it, one that begins like it."""
    for ids in (PROMPT, [*PROMPT, 270, 280], [*PROMPT[:20], 299]):
        for drafter in ("model", "none"):
            got = session.complete(ids, **{**OPTIONS, "drafter": drafter})
            truth.check(ids, got.token_ids, **OPTIONS)


@pytest.mark.parametrize("drafter", ["model", "splice", "ngram", "none"])
@pytest.mark.parametrize("how", ["close", "abandon", "throw"])
def test_a_stream_left_at_any_event(session: Session, truth: Truth, drafter: str, how: str) -> None:
    session.clear_cache()
    n_events = len(list(session.stream(PROMPT, **OPTIONS, drafter=drafter)))
    for at in range(n_events + 1):
        if at % 2:
            session.clear_cache()
        stream = session.stream(PROMPT, **OPTIONS, drafter=drafter)
        for _ in range(min(at, n_events)):
            next(stream, None)  # what is cached is not read again: fewer events
        if how == "close":
            stream.close()  # type: ignore[attr-defined]
        elif how == "throw":
            with pytest.raises(Boom):
                stream._events.throw(Boom())  # type: ignore[attr-defined]
        del stream
        got = session.complete(PROMPT, **OPTIONS, drafter=drafter)
        truth.check(PROMPT, got.token_ids, **OPTIONS)
    check(session, truth)


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("drafter", ["model", "none"])
def test_an_exception_around_any_native_call(
    session: Session, truth: Truth, drafter: str, how: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch)
        session.clear_cache()
        faults.disarm()
        session.complete(PROMPT, **OPTIONS, drafter=drafter)
        n_calls = faults.n_calls
        assert n_calls > 20
        n_raised = 0
        for at in range(n_calls):
            if at % 3 == 0:
                session.clear_cache()
            faults.arm(at, how)
            try:
                session.complete(PROMPT, **OPTIONS, drafter=drafter)
            except Boom:
                n_raised += 1
            faults.disarm()
            got = session.complete(PROMPT, **OPTIONS, drafter=drafter)
            truth.check(PROMPT, got.token_ids, **OPTIONS)
        assert n_raised > n_calls // 4
    check(session, truth)


@pytest.mark.parametrize("code", [1, 2, -1, -3])
@pytest.mark.parametrize("kind_of_failure", ["code", "late"])
def test_every_code_of_llama_decode(
    session: Session, truth: Truth, code: int, kind_of_failure: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, ("llama_decode",))
        for at in range(14):
            session.clear_cache()
            faults.arm(at, (kind_of_failure, code))
            if code == 2:
                got = session.complete(PROMPT, **OPTIONS, drafter="model")
                assert got.reason == "cancelled"
            else:
                with pytest.raises(EngineError, match=f"code {code}"):
                    session.complete(PROMPT, **OPTIONS, drafter="model")
            assert faults.disarm()
            check(session, truth)


def test_an_abort_in_the_middle_of_any_decode(session: Session, truth: Truth) -> None:
    """llama.cpp itself stops halfway: a recurrent state may be half written then."""
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, ("llama_decode",))
        for at in range(14):
            session.clear_cache()
            faults.arm(at, "abort", session._pair.cancel)
            got = session.complete(PROMPT, **OPTIONS, drafter="model")
            assert got.reason == "cancelled"
            assert faults.disarm()
            true = truth.answer(PROMPT, **OPTIONS)
            assert got.token_ids == true[: len(got.token_ids)]
            check(session, truth)


def test_a_cancelled_prompt_keeps_what_was_read(session: Session, kind: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, ("llama_decode",))
        session.clear_cache()
        faults.arm(2, "abort", session._pair.cancel)
        assert session.complete(PROMPT, **OPTIONS, drafter="none").reason == "cancelled"
        faults.disarm()
    again = session.complete(PROMPT, **OPTIONS, drafter="none")
    assert again.stats.cache_n == 32, "two pieces of sixteen"


def test_an_exception_in_the_measurement_of_costs(tiny_dir: Path, kind: str, truth: Truth) -> None:
    options = {**OPTIONS, "n_draft": None}
    for at in (0, 3, 8):
        with (
            Session(write(tiny_dir, kind), write(tiny_dir, kind, noise=0.1), LOAD) as session,
            pytest.MonkeyPatch.context() as patch,
        ):
            faults = Faults(patch, ("llama_decode",))
            faults.arm(at, "after")
            with pytest.raises(Boom):
                session.complete(PROMPT, **options)
            faults.disarm()
            got = session.complete(PROMPT, **options)
            truth.check(PROMPT, got.token_ids, **options)


@pytest.mark.parametrize("drafter", ["model", "none"])
def test_the_events_of_a_cancelled_answer_add_up(session: Session, drafter: str) -> None:
    session.clear_cache()
    events = []
    for event in session.stream(PROMPT, **OPTIONS, drafter=drafter):
        events.append(event)
        if sum(isinstance(e, Round) for e in events) == 2:
            session.cancel()
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "cancelled"
    rounds = [event for event in events if isinstance(event, Round)]
    assert "".join(round_.text for round_ in rounds) == finished.text
    committed = [t.id for round_ in rounds for t in round_.tokens if t.committed]
    assert tuple(committed) == finished.token_ids
