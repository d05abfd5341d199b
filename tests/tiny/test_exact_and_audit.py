"""Exact mode and the audit, with batches that do and do not give the bits of single decodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from localspec.bench.audit import audit
from localspec.control.exact_sizes import exact_sizes
from localspec.decoding import engine as engine_module
from localspec.decoding import verify
from localspec.decoding.events import Round
from localspec.errors import InvalidOptionError
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests.tiny.test_adaptive import flat

GREEDY = {"temperature": 0.0, "max_tokens": 60}
PROMPT = "the and of"


class NoisyContext:
    """Rows say the token's value; batches above a size that depends on the depth add noise."""

    replays = False
    n_batch, max_rows, n_vocab = 512, 64, 100

    def __init__(self, n_ctx: int = 4096) -> None:
        self.n_ctx = n_ctx
        self.ids: list[int] = []
        self.depths: list[int] = []

    def decode(self, ids: Sequence[int], *, n_rows: int) -> list[np.ndarray]:
        depth = len(self.ids)
        self.ids += ids
        self.depths.append(depth)
        n = len(ids)
        noise = 0.01 if n > 8 or (n > 4 and depth >= 257) or n == 3 else 0.0
        return [np.full(5, token + noise, np.float32) for token in ids[n - n_rows :]]

    def truncate(self, n: int) -> bool:
        del self.ids[n:]
        return True

    def clear(self) -> None:
        self.ids.clear()


def test_probing_keeps_the_sizes_that_hold_at_every_depth() -> None:
    context = NoisyContext()
    assert exact_sizes(context) == [2, 4]  # type: ignore[arg-type]
    assert context.ids == []
    assert max(context.depths) > 2000


def test_a_short_context_is_probed_as_far_as_it_goes() -> None:
    context = NoisyContext(n_ctx=256)
    assert exact_sizes(context) == [2, 4, 5, 6, 7, 8]  # type: ignore[arg-type]
    assert max(context.depths) < 256


@pytest.fixture
def exact(tiny_target: Path, tiny_draft: Path) -> Iterator[Session]:
    with Session(tiny_target, tiny_draft, LoadOptions(exact=True, n_ctx=512)) as session:
        yield session


def fix(session: Session, sizes: set[int]) -> None:
    session._measured._sizes = frozenset(sizes)
    session._measured._costs = flat()
    session._measured._costs.may_verify = session._measured._sizes.__contains__


@pytest.mark.parametrize("options", [{}, {"n_draft": 6}, {"drafter": "ngram"}, {"n_draft": 1}])
def test_only_batches_with_the_same_bits_are_verified(
    exact: Session, options: dict[str, object]
) -> None:
    fix(exact, {2, 5})
    plain = exact.complete(PROMPT, drafter="none", **GREEDY)
    events = list(exact.stream(PROMPT, **GREEDY, **options))
    drafts = {event.n_draft for event in events if isinstance(event, Round)}
    assert drafts <= {0, 1, 4}
    assert drafts & {1, 4}
    assert events[-1].token_ids == plain.token_ids  # type: ignore[union-attr]


def test_without_such_a_batch_it_says_so_and_decodes_plain(exact: Session) -> None:
    fix(exact, set())
    result = exact.complete(PROMPT, **GREEDY)
    assert result.stats.draft_n == 0
    assert any("exact mode" in note and "nothing is drafted" in note for note in result.stats.notes)


def test_exact_sampling_is_judged_by_match_alone(exact: Session) -> None:
    fix(exact, {2, 5})
    assert exact.complete(PROMPT, temperature=1.0, max_tokens=9).stats.verifier == "match"
    with pytest.raises(InvalidOptionError, match="exact"):
        exact.complete(PROMPT, temperature=1.0, verifier="block")


def test_the_probe_runs_on_a_real_context(exact: Session) -> None:
    depths: list[int] = []
    sizes = exact.exact_sizes(depths.append)
    assert depths in ([100], [100, 300])  # what fits 512 tokens, until no size is left
    assert sizes <= set(range(2, 18))
    assert exact.exact_sizes() == sizes


@pytest.mark.parametrize("options", [{}, {"n_draft": 5}, {"drafter": "ngram", "n_draft": 3}])
def test_an_audit_finds_the_texts_identical(pair: Session, options: dict[str, object]) -> None:
    found = audit(pair, PROMPT, max_tokens=50, **options)
    assert (found.verdict, found.n_same, found.position) == ("identical", 50, None)


def test_an_audit_finds_a_planted_bug(pair: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(p, draft, u):  # type: ignore[no-untyped-def]
        return verify.Verdict(len(draft), p[len(draft)].sample(u[-1]))

    planted = SimpleNamespace(match=trusting, rejection=verify.rejection, block=verify.block)
    monkeypatch.setattr(engine_module, "verify", planted)
    found = audit(pair, PROMPT, max_tokens=120, n_draft=4, drafter="model")
    assert found.verdict == "bug"
    assert found.position is not None
    assert found.plain is not None
    assert found.plain.best == found.plain_token
    assert found.batched is not None
    assert found.our_token != found.batched.best


def test_an_audit_explains_a_near_tie(pair: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch's rows prefer another token by a hair: its text parts there, and is no bug."""
    decode = type(pair._target).decode
    ids = pair.encode(PROMPT)
    plain = pair.complete(PROMPT, drafter="none", **GREEDY).token_ids
    at = 20
    other = (plain[at] + 1) % pair._target.n_vocab

    def shaped(self, batch, *, n_rows):  # type: ignore[no-untyped-def]
        rows = decode(self, batch, n_rows=n_rows)
        start = len(self.ids) - n_rows + 1
        if self is pair._target and n_rows:
            rows = [row.copy() for row in rows]
            for i, row in enumerate(rows):
                if start + i == len(ids) + at and list(self.ids[: start + i]) == [
                    *ids,
                    *plain[:at],
                ]:
                    top = float(row.max()) + 1.0
                    row[plain[at]] = top + (0.01 if len(batch) == 1 else 0.0)
                    row[other] = top + (0.0 if len(batch) == 1 else 0.01)
        return rows

    monkeypatch.setattr(type(pair._target), "decode", shaped)
    found = audit(pair, PROMPT, max_tokens=40, n_draft=3, drafter="model")
    assert found.verdict == "near tie"
    assert (found.position, found.n_same) == (at, at)
    assert (found.plain_token, found.our_token) == (plain[at], other)
    assert found.plain is not None
    assert found.batched is not None
    assert found.plain.gap == pytest.approx(0.01, abs=1e-3)
    assert found.batched.gap == pytest.approx(0.01, abs=1e-3)
    assert found.batch_size == 4
