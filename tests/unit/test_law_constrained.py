"""The law under a grammar, by enumeration: p masked by what is allowed behind the drafts before it.

A toy matcher over three tokens, TargetLaw and Constraint as the engine uses them, and each
verifier. The output of one round, gone on with plainly, must follow plain constrained decoding.
Masks by another row's position, and rejected tokens that moved the answer on, must be found out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pytest

from localspec.decoding.target_law import TargetLaw
from localspec.decoding.verify import block, match, rejection
from localspec.errors import EngineError, NoTokenError
from localspec.sampling.constraint import Constraint, Position
from localspec.sampling.distribution import Distribution
from localspec.sampling.params import SamplingParams
from tests.unit.test_law import (
    DraftLaw,
    Prefix,
    Table,
    assert_lossless,
    match_law,
    output_law,
    table,
    verdict_law,
)

N_VOCAB, K = 3, 2
PARAMS = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
JUDGES: dict[str, DraftLaw] = {
    "match": partial(match_law, match),
    "rejection": partial(verdict_law, rejection),
    "block": partial(verdict_law, block),
}


class Toy:
    """No token twice in a row; token 2 only after token 0."""

    end_ids: frozenset[int] = frozenset()
    may_end = False

    def __init__(self) -> None:
        self.consumed: list[int] = []

    def consume(self, tokens: Sequence[int]) -> int:
        n = self.n_valid(tokens)
        self.consumed += tokens[:n]
        return n

    def n_valid(self, tokens: Sequence[int]) -> int:
        last = [*self.consumed[-1:], *tokens]
        before = [None, *last] if not self.consumed else last
        pairs = zip(before, tokens, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if not self._allows(a, b)), len(tokens))

    def rollback(self, n: int) -> None:
        del self.consumed[len(self.consumed) - n :]

    def allowed(self) -> np.ndarray:
        last = self.consumed[-1] if self.consumed else None
        return np.array([self._allows(last, token) for token in range(N_VOCAB)])

    def forced_bytes(self) -> bytes:
        return b""

    def _allows(self, last: int | None, token: int) -> bool:
        return token != last and (token != 2 or last == 0)


def constraint(kind: type[Constraint] = Constraint, toy: type[Toy] = Toy) -> Constraint:
    return kind(toy(), lambda text: (), lambda token: b"x")


def logits_table(seed: int) -> Mapping[Prefix, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        prefix: rng.normal(0.0, 1.5, N_VOCAB).astype(np.float32)
        for n in range(K + 1)
        for prefix in itertools.product(range(N_VOCAB), repeat=n)
    }


def masked(prefix: Prefix, weights: np.ndarray) -> Distribution:
    """Plain constrained decoding: what the grammar forbids has no weight. Written anew here."""
    ok = [
        t != (prefix[-1] if prefix else None) and (t != 2 or prefix[-1:] == (0,))
        for t in range(N_VOCAB)
    ]
    kept = np.where(ok, weights, 0.0)
    ids = np.flatnonzero(kept).astype(np.int32)
    return Distribution(ids, kept[ids] / kept.sum())


def plain(rows: Mapping[Prefix, np.ndarray]) -> Table:
    return {prefix: masked(prefix, np.exp(row.astype(float))) for prefix, row in rows.items()}


class Engine:
    """Judges a draft as the engine does: all laws from one TargetLaw over one Constraint."""

    def __init__(self, rows: Mapping[Prefix, np.ndarray], kind: type[Constraint]) -> None:
        self.rows, self.kind = rows, kind

    def laws(self, draft: Prefix) -> list[Distribution]:
        states = constraint(self.kind)
        law = TargetLaw(PARAMS, 0, constraint=states)
        rows = [self.rows[draft[:i]] for i in range(len(draft) + 1)]
        return law.rows(rows, [9], 1, list(draft))


def law_of(engine: Engine, q: Table, judge: DraftLaw) -> Mapping[Prefix, float]:
    def by_engine(p: Sequence[Distribution], qs: Sequence[Distribution], draft: Prefix) -> object:
        return judge(engine.laws(draft), qs, draft)

    return output_law(by_engine, plain(engine.rows), q, N_VOCAB, K)  # type: ignore[arg-type]


def q_table(seed: int, *, is_masked: bool, one_hot: bool) -> Table:
    rng = np.random.default_rng(seed + 100)
    raw = table(lambda r, n: Distribution(np.arange(n, dtype=np.int32), r.dirichlet(np.ones(n))),
                N_VOCAB, K, seed + 100)  # fmt: skip
    found = {}
    for prefix, law in raw.items():
        whole = masked(prefix, law.probs) if is_masked else law
        found[prefix] = Distribution.one_hot(int(rng.choice(whole.ids))) if one_hot else whole
    return found


@pytest.mark.parametrize("one_hot", [False, True], ids=["drawn", "one_hot"])
@pytest.mark.parametrize("is_masked", [True, False], ids=["masked_q", "free_q"])
@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("seed", range(4))
def test_the_law_is_plain_constrained_decodings(
    seed: int, judge: str, is_masked: bool, one_hot: bool
) -> None:
    """Also for guesses that the grammar forbids: they have p = 0 and are refused."""
    rows = logits_table(seed)
    q = q_table(seed, is_masked=is_masked, one_hot=one_hot)
    law = law_of(Engine(rows, Constraint), q, JUDGES[judge])
    assert_lossless(law, plain(rows), N_VOCAB, K)


class RowBefore(Constraint):
    """Planted: masks each row by the state of the row before."""

    def after(self, draft_ids: Sequence[int]):  # type: ignore[no-untyped-def]
        return super().after(draft_ids[:-1])


class Unmasked(Constraint):
    """Planted: masks the first row alone."""

    def after(self, draft_ids: Sequence[int]):  # type: ignore[no-untyped-def]
        return super().after(draft_ids) if not draft_ids else None


class Remembers(Constraint):
    """Planted: drafted tokens move the answer on."""

    def after(self, draft_ids: Sequence[int]):  # type: ignore[no-untyped-def]
        found = super().after(draft_ids)
        if found is not None and draft_ids:
            self._path = []
            self._known = [found]
        return self._known[-1]


@pytest.mark.parametrize("wrong", [RowBefore, Unmasked, Remembers])
@pytest.mark.parametrize("judge", JUDGES)
def test_a_wrong_mask_is_found_out(judge: str, wrong: type[Constraint]) -> None:
    rows = logits_table(1)
    q = q_table(1, is_masked=True, one_hot=False)
    with pytest.raises(AssertionError):
        assert_lossless(law_of(Engine(rows, wrong), q, JUDGES[judge]), plain(rows), N_VOCAB, K)


def ids_at(position: Position | None) -> list[int]:
    assert position is not None
    return np.flatnonzero(position.allowed).tolist()


def test_rejected_tokens_leave_no_trace() -> None:
    states = constraint()
    assert ids_at(states.after([0, 2])) == [0, 1]
    states.commit(1)  # the draft's first token was refused
    assert ids_at(states.committed) == [0]
    assert ids_at(states.after([0])) == [1, 2]
    assert ids_at(states.committed) == [0]


def test_accepted_tokens_keep_what_was_found_when_they_were_judged() -> None:
    states = constraint()
    judged = states.after([0])
    states.after([0, 2])
    states.commit(0)
    assert states.committed is judged


def test_positions_are_those_of_a_new_matcher_whatever_was_asked_before() -> None:
    rng = np.random.default_rng(5)
    states, committed = constraint(), []
    for _ in range(300):
        draft = rng.integers(0, N_VOCAB, rng.integers(0, 5)).tolist()
        fresh = Toy()
        n = fresh.consume([*committed, *draft]) - len(committed)
        assert states.n_valid(draft) == n
        found = states.after(draft)
        assert (found is None) == (n < len(draft))
        if found is not None:
            assert ids_at(found) == np.flatnonzero(fresh.allowed()).tolist()
        if rng.random() < 0.3:
            committed.append(int(rng.choice(ids_at(states.committed))))
            states.commit(committed[-1])


def test_a_span_is_valid_as_far_as_the_grammar_goes() -> None:
    states = constraint()
    assert states.n_valid([0, 2, 1, 0]) == 4
    assert states.n_valid([0, 0, 1]) == 1
    assert states.valid_span([0], [2, 2, 1]) == 1
    assert states.n_valid([2]) == 0


def law_after_mirostat(seed: int, version: int) -> None:
    """mu behind each drafted token is what plain decoding would have had."""
    params = SamplingParams(mirostat=version, mirostat_tau=1.0, temperature=1.0)
    rows = logits_table(seed)
    whole = TargetLaw(params, 0)
    laws = whole.rows([rows[()], rows[(1,)], rows[(1, 0)]], [9], 1, [1, 0])
    step = TargetLaw(params, 0)
    ids = [9]
    for i, token in enumerate([1, 0]):
        law = step.rows([rows[tuple(ids[1:])]], ids, 1, [])[0]
        assert law.probs == pytest.approx(laws[i].probs)
        step.advance([law], [token])
        ids.append(token)
    assert step.rows([rows[(1, 0)]], ids, 1, [])[0].probs == pytest.approx(laws[2].probs)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_mirostat_counts_the_drafted_tokens(seed: int, version: int) -> None:
    law_after_mirostat(seed, version)


def test_before_min_tokens_the_end_is_forbidden() -> None:
    row = np.zeros(N_VOCAB, np.float32)
    law = TargetLaw(PARAMS, 0, min_tokens=2, end_ids=[0])
    p = law.rows([row, row, row], [9], 1, [1, 1])
    assert [round(p_i.prob(0), 3) for p_i in p] == [0.0, 0.0, 0.333]
    assert row.tolist() == [0.0, 0.0, 0.0]


def test_the_coin_of_xtc_belongs_to_the_position() -> None:
    params = SamplingParams(
        temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, xtc_probability=0.5, xtc_threshold=0.1
    )
    row = np.array([1.0, 0.8, 0.0], np.float32)
    laws = TargetLaw(params, 7).rows([row] * 40, [9], 1, [1] * 39)
    kept = [len(law.ids) for law in laws]
    assert 5 < kept.count(1) < 35  # it acts at some positions and not at others
    later = TargetLaw(params, 7).rows([row] * 30, [9] * 11, 1, [1] * 29)
    assert [len(law.ids) for law in later] == kept[10:]


class DeadEnd(Toy):
    """Nothing may come behind token 1."""

    def _allows(self, last: int | None, token: int) -> bool:
        return last != 1


def test_a_row_without_a_law_raises_when_it_is_reached() -> None:
    fine = np.zeros(N_VOCAB, np.float32)
    states = constraint(toy=DeadEnd)
    law = TargetLaw(PARAMS, 0, constraint=states)
    laws = law.rows([fine, fine], [9], 1, [1])
    law.advance(laws, [0])  # the draft was refused before it
    law.rows([fine, fine], [9], 1, [1])
    with pytest.raises(NoTokenError):
        law.advance(laws, [1, 2])


def test_a_poisoned_row_raises_at_once() -> None:
    fine, dead = np.zeros(N_VOCAB, np.float32), np.full(N_VOCAB, -np.inf, np.float32)
    with pytest.raises(EngineError, match="the model returned -inf"):
        TargetLaw(PARAMS, 0).rows([fine, dead], [9], 1, [1])
