"""N. Trimming the cache and reusing a prefix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localspec.session.session import Session
from tests.cases.proof import shown_by
from tests.tiny.truth import Truth, write

PROMPT = [1, 270, 280, 265, 290]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 24}


@pytest.mark.parametrize("kind", ["attention", "window", "mamba", "jamba"])
def test_a_whole_prefix_hit(tiny_dir: Path, kind: str) -> None:
    """Regenerated three times; and D is cached whole while T is not, and the other way round."""
    truth = Truth(write(tiny_dir, kind))
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, noise=0.1)) as session:
        assert session._draft is not None
        for empty in (None, session._target, session._draft):
            if empty is not None:
                empty.clear()
            got = session.complete(PROMPT, drafter="model", n_draft=3, **GREEDY)
            assert len(got.token_ids) == 24
            truth.check(PROMPT, got.token_ids, **GREEDY)
    truth.session.close()
    shown_by("tiny.test_engine.test_asking_again_decodes_the_last_token_again")


@pytest.mark.parametrize("kind", ["attention", "window", "mamba", "jamba"])
def test_ten_turns_read_only_what_is_new(tiny_dir: Path, kind: str) -> None:
    """The answer is not evaluated again in the next turn."""
    with Session(write(tiny_dir, kind)) as session:
        ids = list(PROMPT)
        for turn in range(10):
            got = session.complete(ids, drafter="none", **GREEDY)
            if turn:
                assert got.stats.prompt_n == 4  # three new ones, and the last token of before
            ids += [*got.token_ids, 270, 271, 272]


@pytest.mark.parametrize("kind", ["attention", "mamba", "jamba"])
def test_a_draft_that_was_passed_over(tiny_dir: Path, kind: str) -> None:
    """Answers without the draft model, then with it: it catches up in one batch, no error."""
    truth = Truth(write(tiny_dir, "attention"))
    with Session(write(tiny_dir, "attention"), write(tiny_dir, kind, seed=5)) as session:
        ids = list(PROMPT)
        for drafter in ("model", "none", "none", "model", "ngram", "splice"):
            got = session.complete(ids, drafter=drafter, n_draft=3, **GREEDY)
            truth.check(ids, got.token_ids, **GREEDY)
            ids += [*got.token_ids, 270]
    truth.session.close()
    shown_by("tiny.test_interruptions.test_every_code_of_llama_decode")


def test_a_model_that_drafts_for_itself() -> None:
    """Every draft accepted, also in the rounds after full acceptance."""
    shown_by(
        "tiny.test_engine.test_a_target_drafting_for_itself_is_always_right",
        "tiny.test_kinds.test_a_draft_of_the_same_weights_is_always_right",
        "real.test_default_pair.test_a_model_drafting_for_itself_is_always_right",
    )
