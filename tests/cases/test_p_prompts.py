"""P. Empty and too long prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import ContextOverflowError, EmptyPromptError, EngineError
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests.cases.proof import shown_by
from tests.tiny.truth import Truth, write

GREEDY = {"temperature": 0.0, "max_tokens": 4}


def test_nothing_to_send(tiny_dir: Path) -> None:
    """ "" and [] are refused by name, spaces are text, and the next answer is unharmed."""
    with Session(write(tiny_dir, "attention")) as session:
        for empty in ("", []):
            with pytest.raises(EmptyPromptError, match="nothing to continue"):
                session.complete(empty)
        with pytest.raises(EmptyPromptError, match="nothing to answer"):
            session.chat([{"role": "user", "content": "  "}])
        assert len(session.complete("   ", **GREEDY).token_ids) == 4
    shown_by("tiny.test_engine.test_an_empty_prompt_is_refused_and_nothing_breaks")


@pytest.mark.parametrize("kind", ["attention", "mamba", "jamba"])
@pytest.mark.parametrize("n", [63, 64, 65, 129])
def test_prompts_around_the_batch_size(tiny_dir: Path, kind: str, n: int) -> None:
    """Longer than n_batch: read in pieces, T and D; K + 1 beyond n_batch is cut."""
    ids = [1, *(265 + i % 40 for i in range(n - 1))]
    truth = Truth(write(tiny_dir, kind))
    load = LoadOptions(n_ctx=512, n_batch=64)
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, noise=0.1), load) as session:
        for n_draft in (3, 500):
            got = session.complete(ids, drafter="model", n_draft=n_draft, **GREEDY)
            truth.check(ids, got.token_ids, **GREEDY)
    truth.session.close()
    shown_by("tiny.test_engine.test_prompts_around_the_batch_size")


def test_a_draft_beyond_the_batch_allocation(tiny_dir: Path) -> None:
    """K is raised in mid-session: cut to the rows of one verification, with a note."""
    with Session(write(tiny_dir, "attention"), write(tiny_dir, "attention", noise=0.1)) as session:
        for n_draft in (5, 16, 200):
            got = session.complete([1, 270], n_draft=n_draft, temperature=0.0, max_tokens=90)
            assert len(got.token_ids) == 90
        assert any("n_draft 200 is cut to 63" in note for note in got.stats.notes)
        with pytest.raises(EngineError, match="rows asked"):
            session._target.decode([1] * 100, n_rows=100)


@pytest.mark.parametrize("factor", [1, 10])
def test_a_prompt_beyond_the_context(tiny_dir: Path, factor: int) -> None:
    """Refused with both numbers; the chat leaves out old messages by a stated rule."""
    with Session(write(tiny_dir, "attention"), None, LoadOptions(n_ctx=256)) as session:
        n = 256 * factor + 1
        with pytest.raises(ContextOverflowError, match=f"has {n:,} tokens.*holds 256"):
            session.complete([270] * n)
        assert len(session.complete([270], **GREEDY).token_ids) == 4
    shown_by(
        "unit.test_context_fit.test_a_long_last_question_takes_from_the_room_before_it_is_refused",
        "tiny.test_long_chat.test_a_message_that_no_context_holds_is_refused_by_name",
    )


def test_the_ubatch_is_the_batch(tiny_dir: Path) -> None:
    """n_batch > n_ubatch crashes encoders: encoders are refused before, and both are one number."""
    with Session(write(tiny_dir, "attention"), None, LoadOptions(n_batch=2048)) as session:
        import llama_cpp

        assert llama_cpp.llama_n_ubatch(session._target._ctx) == session._target.n_batch
    shown_by("tiny.test_command.test_bad_files_get_a_named_error")
