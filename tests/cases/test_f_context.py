"""F. Context overflow and shift. The lines of the section, each beside what shows it."""

from __future__ import annotations

from pathlib import Path

from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests.cases.proof import shown_by
from tests.tiny.truth import write

REPETITIVE = [1, *([270, 280, 290, 265] * 62)]


def test_long_drafts_at_the_end_of_the_window(tiny_dir: Path) -> None:
    """A full draft no longer fits: K is cut to the room, the reason is `context`, nothing dies.

    The smallest context of llama.cpp is 256, so the prompt has 249 tokens, not 56 of 64.
    """
    load = LoadOptions(n_ctx=256)
    for kind in ("attention", "window", "mamba", "jamba"):
        with Session(write(tiny_dir, kind), write(tiny_dir, kind, noise=0.1), load) as session:
            for drafter in ("ngram", "model", "splice", "none"):
                got = session.complete(REPETITIVE, drafter=drafter, n_draft=16, temperature=0.0)
                assert got.reason == "context"
                assert len(got.token_ids) == 256 - len(REPETITIVE) + 1
                assert session.complete([1, 270], max_tokens=2, temperature=0.0).token_ids
    shown_by("tiny.test_engine.test_a_full_context_ends_with_its_own_reason")


def test_the_draft_s_own_limit() -> None:
    """D looks ahead past its own cache: it stops, and plain decoding carries on."""
    shown_by("tiny.test_engine.test_the_draft_stops_at_its_own_smaller_context")


def test_both_contexts_are_what_was_asked(tiny_dir: Path) -> None:
    """D ignored the context length: here both are read back and are the same."""
    paths = write(tiny_dir, "attention"), write(tiny_dir, "attention", noise=0.1)
    with Session(*paths, LoadOptions(n_ctx=700)) as session:
        assert session._draft is not None
        assert session.n_ctx == session._draft.n_ctx == 768  # rounded up to 256
        assert session.loaded.n_ctx == 768


def test_oldest_turns_dropped_while_drafting() -> None:
    """There is no context shift: what is left out makes another prompt, and both caches and the
    index of the text are cut to it from its ids. No counter outlives that."""
    shown_by(
        "tiny.test_long_chat.test_thirty_turns_in_a_context_of_512",
        "tiny.test_sequences.test_any_sequence_ends_in_the_answer_of_a_cold_session",
        "unit.test_context_fit.test_it_always_fits",
    )
