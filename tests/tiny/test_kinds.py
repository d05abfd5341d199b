"""Every kind of memory, as target and as draft: the text is the plain text, whatever is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.decoding.events import Round
from localspec.llama import checkpoints
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.rollback import rollback_refused
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests import tiny_models
from tests.tiny.truth import KINDS, RECURRENT, Truth, write

PROMPT = [1, 270, 280, 265, 290, 300, 271, 266]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40}
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 7, "max_tokens": 40, "verifier": "match"}
BAD, GOOD = {"seed": 99}, {"noise": 0.1}


@pytest.fixture(scope="module")
def truths(tiny_dir: Path) -> Iterator[dict[str, Truth]]:
    made = {kind: Truth(write(tiny_dir, kind)) for kind in KINDS}
    yield made
    for truth in made.values():
        truth.session.close()


def context_of(path: Path, **how: Any) -> Context:
    return Context(Model(path), **{"n_ctx": 512, "n_threads": 1, **how})


@pytest.mark.parametrize("kind", KINDS)
def test_which_memories_are_cut_and_which_replay(tiny_dir: Path, kind: str) -> None:
    context = context_of(write(tiny_dir, kind))
    assert context.replays is (kind in RECURRENT)
    assert rollback_refused(context) is None
    assert context.ids == []
    context.close()


@pytest.mark.parametrize("draft", [BAD, GOOD], ids=["bad", "good"])
@pytest.mark.parametrize("drafter", ["model", "ngram", "splice"])
@pytest.mark.parametrize("kind", KINDS)
def test_text_is_the_plain_text_of_every_kind(
    tiny_dir: Path, truths: dict[str, Truth], kind: str, drafter: str, draft: dict[str, Any]
) -> None:
    refused = accepted = 0
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, **draft)) as session:
        assert session.can_draft
        for n_draft in (1, 3, 8, 20):
            for options in (GREEDY, SAMPLED):
                got = session.complete(PROMPT, drafter=drafter, n_draft=n_draft, **options)
                truths[kind].check(PROMPT, got.token_ids, **options)
                assert got.stats.drafter == drafter
                refused += got.stats.draft_n_rejected
                accepted += got.stats.draft_n_accepted
    if drafter == "model":
        assert refused > 20, "nothing was taken back: this proves nothing"
        assert accepted > 20 or draft is BAD


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_serves_as_a_draft(tiny_dir: Path, truths: dict[str, Truth], kind: str) -> None:
    with Session(write(tiny_dir, "attention"), write(tiny_dir, kind, seed=5)) as session:
        assert session.has_draft_model
        for n_draft in (1, 4, 9):
            for options in (GREEDY, SAMPLED, {**SAMPLED, "verifier": "block"}):
                got = session.complete(PROMPT, drafter="model", n_draft=n_draft, **options)
                assert got.stats.draft_n > 30
                if options.get("verifier") != "block":
                    truths["attention"].check(PROMPT, got.token_ids, **options)


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_draft_of_the_same_weights_is_always_right(tiny_dir: Path, kind: str) -> None:
    """The draft's own memory goes back and forth too; a wrong state would guess wrong."""
    path = write(tiny_dir, kind)
    with Session(path, path) as session:
        got = session.complete(PROMPT, drafter="model", n_draft=5, **GREEDY)
        assert got.stats.acceptance_rate == 1.0
        again = session.complete([*PROMPT, 275, 276], drafter="model", n_draft=5, **GREEDY)
        assert again.stats.acceptance_rate == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_the_adaptive_controller_keeps_the_text(
    tiny_dir: Path, truths: dict[str, Truth], kind: str
) -> None:
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, **GOOD)) as session:
        for drafter in ("splice", "ngram", "auto"):
            got = session.complete(PROMPT, drafter=drafter, **GREEDY)
            truths[kind].check(PROMPT, got.token_ids, **GREEDY)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_prompt_never_meets_a_wrong_state(
    tiny_dir: Path, truths: dict[str, Truth], kind: str
) -> None:
    """Continued, asked again, edited at the end, edited early, shortened: each as from cold."""
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, **BAD)) as session:
        first = session.complete(PROMPT, drafter="model", n_draft=4, **GREEDY)
        turns = [
            [*PROMPT, *first.token_ids, 270, 271, 272],
            PROMPT,
            [*PROMPT, *first.token_ids[:5], 290, 291],
            [*PROMPT[:-1], 299, 298],
            [*PROMPT[:2], 288],
            [*PROMPT, *first.token_ids],
        ]
        for ids in turns:
            for drafter in ("model", "none"):
                got = session.complete(ids, drafter=drafter, n_draft=4, **GREEDY)
                truths[kind].check(ids, got.token_ids, **GREEDY)


@pytest.mark.parametrize("kind", RECURRENT)
def test_what_a_recurrent_memory_reuses(tiny_dir: Path, kind: str) -> None:
    ids = [1, *range(270, 300)] * 3
    with Session(write(tiny_dir, kind)) as session:
        first = session.complete(ids, drafter="none", **GREEDY)
        assert first.stats.cache_n == 0
        longer = [*ids, *first.token_ids, 270, 271]
        assert session.complete(longer, drafter="none", **GREEDY).stats.cache_n == len(longer) - 3
        again = session.complete(ids, drafter="none", **GREEDY)
        assert again.stats.cache_n == len(ids) - 1, "the checkpoint at the prompt's end"
        other = session.complete([*ids[:40], 299, 299], drafter="none", **GREEDY)
        assert other.stats.cache_n == 0, "no checkpoint before the change: read anew"


@pytest.mark.parametrize("kind", RECURRENT)
def test_rounds_tell_what_was_read_again(tiny_dir: Path, kind: str) -> None:
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, **BAD)) as session:
        events = list(session.stream(PROMPT, drafter="model", n_draft=3, **GREEDY))
    rounds = [event for event in events if isinstance(event, Round)]
    again = 0
    for before, round_ in itertools.pairwise(rounds):
        refused = before.n_accepted < before.n_draft
        again = again + before.n_accepted + 1 if refused else 0
        if again > 8:  # then they are read apart
            again = 0
        assert round_.n_replayed == again
    assert any(round_.n_replayed for round_ in rounds)


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_memory_that_cannot_be_saved_runs_plain_and_says_why(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(checkpoints.Checkpoints, "take", lambda self, n, keep: False)
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, **GOOD)) as session:
        assert not session.can_draft
        assert any("the draft model is not used" in note for note in session.notes)
        got = session.complete(PROMPT, **GREEDY)
        again = session.complete(PROMPT, **GREEDY)
    assert got.stats.drafter == "none"
    assert any("cannot save its state" in note for note in got.stats.notes)
    assert got.token_ids == again.token_ids


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_memory_that_restores_wrongly_runs_plain(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The state functions say yes and do nothing."""
    monkeypatch.setattr(checkpoints.Checkpoints, "_write_back", lambda self, snapshot: True)
    with Session(write(tiny_dir, kind)) as session:
        assert not session.can_draft
        assert any("restored state" in n for n in session.complete(PROMPT, **GREEDY).stats.notes)


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_checkpoint_brings_back_the_very_state(tiny_dir: Path, kind: str) -> None:
    context = context_of(write(tiny_dir, kind))
    ids = list(range(265, 295))
    context.decode(ids, n_rows=0)
    assert context.checkpoint()
    clean = context.decode([300], n_rows=1)[0].copy()
    for soil in ([301], list(range(270, 290))):
        context.decode(soil, n_rows=0)
        assert not context.truncate(len(ids) - 1), "there is no checkpoint"
        assert context.truncate(len(ids))
        assert context.ids == ids
        assert np.array_equal(context.decode([300], n_rows=1)[0], clean)
    context.close()


@pytest.mark.parametrize("kind", RECURRENT)
def test_checkpoints_of_another_text_are_forgotten(tiny_dir: Path, kind: str) -> None:
    context = context_of(write(tiny_dir, kind))
    ids = list(range(265, 295))
    context.decode(ids[:10], n_rows=0)
    context.checkpoint(keep=True)
    context.decode(ids[10:], n_rows=0)
    context.checkpoint(keep=True)
    assert context.keep_prefix([*ids[:15], 3, 4]) == 10
    context.decode([3] * 20, n_rows=0)  # as long as the text before
    assert not context.truncate(len(ids)) or context.ids[:10] == ids[:10]
    assert context.keep_prefix([*ids]) == 10
    assert context.keep_prefix([1, 2]) == 0
    context.close()


def test_a_narrow_window_is_not_cut_where_its_tokens_are_gone(tiny_dir: Path) -> None:
    path = write(tiny_dir, "window")
    wide, narrow = (
        context_of(path, swa_full=full, n_ctx=1024, n_batch=16) for full in (True, False)
    )
    ids = [265 + i % 30 for i in range(20 * tiny_models.SWA_WINDOW)]  # more than its 256 cells
    for context in (wide, narrow):
        for start in range(0, len(ids), 16):
            context.decode(ids[start : start + 16], n_rows=0)
    assert wide.truncate(40)
    wide.decode([270], n_rows=0)
    assert not narrow.truncate(40), "llama.cpp says yes to this, and the next logits are wrong"
    assert narrow.ids == ids
    assert narrow.keep_prefix(ids[:40]) == 0
    assert narrow.decode([270], n_rows=1)[0].size
    for context in (wide, narrow):
        context.close()


def test_a_window_cut_back_past_its_length_gives_the_true_logits(tiny_dir: Path) -> None:
    context = context_of(write(tiny_dir, "window"))
    ids = [265 + i % 30 for i in range(4 * tiny_models.SWA_WINDOW)]
    context.decode(ids[:100], n_rows=0)
    clean = context.decode([270], n_rows=1)[0].copy()
    context.decode(ids[:8], n_rows=8)
    assert context.truncate(100)
    assert np.array_equal(context.decode([270], n_rows=1)[0], clean)
    context.close()


@pytest.mark.parametrize("kind", RECURRENT)
def test_exact_mode_does_not_draft_on_a_memory_that_replays(tiny_dir: Path, kind: str) -> None:
    options = LoadOptions(exact=True)
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, **GOOD), options) as session:
        got = session.complete(PROMPT, **GREEDY)
    assert got.stats.drafter == "none"
    assert any("read again" in note for note in got.stats.notes)
