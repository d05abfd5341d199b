"""Random sequences of what people do to a session, against a simple model of the truth.

The truth is a cold session without a draft: whatever was cancelled, closed, edited or changed
before, the next answer must be its answer (tests/tiny/truth.py). Forty sequences by default, and
the same ones each time; for a long run with fresh ones:

    LOCALSPEC_SEQUENCES=2000 python -m pytest tests/tiny/test_sequences.py -s
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from localspec.decoding.events import Finished, Round
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests.tiny.faults import Boom, Faults
from tests.tiny.truth import Truth, write

N_SEQUENCES = int(os.environ.get("LOCALSPEC_SEQUENCES", "40"))
N_STEPS = 12
LOAD = LoadOptions(n_ctx=256, n_batch=16)
TARGETS = ("attention", "window", "experts", "mamba", "jamba", "lfm2")
DRAFTS = (("same", {"noise": 0.1}), ("same", {"seed": 99}), ("mamba", {"seed": 5}))
LONGEST = 120

tokens = st.lists(st.integers(262, 312), min_size=1, max_size=30)


class Pairs:
    """Loaded once for all sequences: what one leaves behind must not matter to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions: dict[tuple[str, int], Session] = {}
        self._truths: dict[str, Truth] = {}

    def session(self, kind: str, draft: int) -> Session:
        if (kind, draft) not in self._sessions:
            drafts, how = DRAFTS[draft]
            path = write(self._folder, kind if drafts == "same" else drafts, **how)
            self._sessions[kind, draft] = Session(write(self._folder, kind), path, LOAD)
        return self._sessions[kind, draft]

    def truth(self, kind: str) -> Truth:
        if kind not in self._truths:
            self._truths[kind] = Truth(write(self._folder, kind))
        return self._truths[kind]

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        for truth in self._truths.values():
            truth.session.close()


class Use(RuleBasedStateMachine):
    """One session and a person who changes their mind."""

    pairs: Pairs
    faults: Faults
    n_answers = 0
    n_interrupted = 0

    @initialize(kind=st.sampled_from(TARGETS), draft=st.integers(0, len(DRAFTS) - 1))
    def load(self, kind: str, draft: int) -> None:
        self.session = self.pairs.session(kind, draft)
        self.truth = self.pairs.truth(kind)
        self.ids = [1, 270, 280]
        self.answer: tuple[int, ...] = ()
        self.options: dict[str, Any] = {
            "temperature": 0.0,
            "max_tokens": 10,
            "n_draft": 3,
            "drafter": "model",
            "seed": 1,
            "verifier": "match",
        }

    @rule(text=tokens)
    def ask_on(self, text: list[int]) -> None:
        """The prompt, its answer, and more: the next turn of a chat."""
        self.ids = [*self.ids, *self.answer, *text]
        if len(self.ids) > LONGEST:
            self.ids = [1, *text]
        self.generate()

    @rule(at=st.floats(0.0, 1.0), text=tokens)
    def edit(self, at: float, text: list[int]) -> None:
        """The prompt from some place on."""
        self.ids = [*self.ids[: max(1, int(at * len(self.ids)))], *text][:LONGEST]
        self.generate()

    @rule()
    def regenerate(self) -> None:
        self.generate()

    @rule(
        temperature=st.sampled_from([0.0, 0.7, 1.5]),
        seed=st.integers(0, 3),
        repeat_penalty=st.sampled_from([1.0, 1.3]),
    )
    def change_sampling(self, temperature: float, seed: int, repeat_penalty: float) -> None:
        self.options |= {
            "temperature": temperature,
            "seed": seed,
            "repeat_penalty": repeat_penalty,
        }

    @rule(drafter=st.sampled_from(["model", "ngram", "splice", "none", "auto"]))
    def change_drafter(self, drafter: str) -> None:
        self.options["drafter"] = drafter

    @rule(n_draft=st.sampled_from([None, 0, 1, 2, 5, 9, 15]))
    def change_n_draft(self, n_draft: int | None) -> None:
        self.options["n_draft"] = n_draft

    @rule(verifier=st.sampled_from(["match", "match", "block", "rejection"]))
    def change_verifier(self, verifier: str) -> None:
        self.options["verifier"] = verifier

    @rule(max_tokens=st.integers(0, 20))
    def change_budget(self, max_tokens: int) -> None:
        self.options["max_tokens"] = max_tokens

    @rule()
    def clear(self) -> None:
        self.session.clear_cache()

    @rule(n_events=st.integers(0, 6))
    def close_stream(self, n_events: int) -> None:
        stream = self.session.stream(self.ids, **self.options)
        for _, _ in zip(range(n_events), stream, strict=False):
            pass
        stream.close()  # type: ignore[attr-defined]
        type(self).n_interrupted += 1

    @rule(n_events=st.integers(0, 6))
    def throw_into_stream(self, n_events: int) -> None:
        stream = self.session.stream(self.ids, **self.options)
        for _, _ in zip(range(n_events), stream, strict=False):
            pass
        with contextlib.suppress(Boom):
            stream._events.throw(Boom())  # type: ignore[attr-defined]
        del stream
        type(self).n_interrupted += 1

    @rule(n_events=st.integers(1, 6))
    def cancel(self, n_events: int) -> None:
        finished = None
        for i, event in enumerate(self.session.stream(self.ids, **self.options)):
            if i == n_events:
                self.session.cancel()
            finished = event
        assert isinstance(finished, Finished)
        self.answer = finished.token_ids  # asked on behind a cut answer
        type(self).n_interrupted += 1

    @rule(at=st.integers(0, 40), how=st.sampled_from(["before", "after", "abort"]))
    def fault(self, at: int, how: str) -> None:
        self.faults.arm(at, how, self.session._pair.cancel)
        with contextlib.suppress(Boom):
            self.session.complete(self.ids, **self.options)
        if self.faults.disarm():
            type(self).n_interrupted += 1

    @invariant()
    def the_session_is_free(self) -> None:
        if hasattr(self, "session"):
            assert not self.session._exclusive.lock.locked()

    def generate(self) -> None:
        got = None
        rounds = []
        for event in self.session.stream(self.ids, **self.options):
            if isinstance(event, Round):
                rounds.append(event)
            got = event
        assert isinstance(got, Finished)
        self.answer = got.token_ids
        type(self).n_answers += 1
        if self.options["temperature"] == 0.0 or self.options["verifier"] == "match":
            self.truth.check(self.ids, got.token_ids, **self.options)
        else:  # the law is tested elsewhere; here: nothing that the target forbids
            assert all(t.p > 0 for r in rounds for t in r.tokens if t.committed)
        if not self.options["max_tokens"]:
            return  # nothing was evaluated: the caches hold what they held
        known = [*self.ids, *self.answer]
        held = self.session._target.ids
        assert held == known[: len(held)]
        assert len(held) < len(known)


@pytest.fixture
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    pairs = Pairs(tmp_path_factory.mktemp("sequences"))
    yield pairs
    pairs.close()


def test_any_sequence_ends_in_the_answer_of_a_cold_session(pairs: Pairs) -> None:
    with pytest.MonkeyPatch.context() as patch:
        Use.pairs, Use.faults = pairs, Faults(patch)
        run_state_machine_as_test(
            Use,
            settings=settings(
                max_examples=N_SEQUENCES,
                stateful_step_count=N_STEPS,
                deadline=None,
                derandomize=N_SEQUENCES <= 40,
                database=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
    n_near = sum(truth.n_near_ties for truth in pairs._truths.values())
    print(
        f"\n{N_SEQUENCES} sequences: {Use.n_answers} answers checked, {Use.n_interrupted} "
        f"interruptions, {n_near} answers left the truth at a near tie"
    )
    assert Use.n_answers > N_SEQUENCES
    assert Use.n_interrupted > N_SEQUENCES // 4
    assert n_near <= max(1, Use.n_answers // 50)
