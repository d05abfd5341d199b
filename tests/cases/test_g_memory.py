"""G. Memory that cannot be rolled back. The lines of the section, each beside what shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from localspec.session.session import Session
from tests.cases.proof import shown_by
from tests.tiny.truth import KINDS, RECURRENT, Truth, write

PROMPT = [1, 270, 280, 265, 290]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 24, "n_draft": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_a_removal_that_is_refused(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """llama_memory_seq_rm says no, always: the caches are cleared and read again, two turns."""
    truth = Truth(write(tiny_dir, kind))
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, seed=99)) as session:
        monkeypatch.setattr(llama_cpp, "llama_memory_seq_rm", lambda *_: False)
        first = session.complete(PROMPT, drafter="model", **GREEDY)
        second = [*PROMPT, *first.token_ids, 271]
        truth.check(PROMPT, first.token_ids, **GREEDY)
        got = session.complete(second, drafter="model", **GREEDY)
        truth.check(second, got.token_ids, **GREEDY)
    truth.session.close()
    shown_by("tiny.test_kinds.test_the_next_prompt_never_meets_a_wrong_state")


def test_rejected_tokens_never_stay_in_a_recurrent_state() -> None:
    """Hybrid T, bad D, most drafts rejected; n-gram and model drafts: text equals plain."""
    shown_by("tiny.test_kinds.test_text_is_the_plain_text_of_every_kind")
    assert {"jamba", "lfm2"} < set(RECURRENT)


def test_a_window_is_cut_only_where_its_tokens_are() -> None:
    """Sliding windows: the full-size cache is on, and seq_pos_min is asked all the same."""
    shown_by(
        "tiny.test_kinds.test_a_narrow_window_is_not_cut_where_its_tokens_are_gone",
        "tiny.test_kinds.test_a_window_cut_back_past_its_length_gives_the_true_logits",
        "real.test_gemma.test_past_the_window_text_is_plain_text",
    )
