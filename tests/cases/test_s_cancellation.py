"""S. Cancellation.

Not shown here: quitting in the middle of a download. The thread that fetches is a daemon, so the
process ends with the screen (localspec.chat.engine_thread); no test kills a download from the chat.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from localspec.decoding.events import Finished, Prefill
from localspec.errors import LocalspecError
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests.cases.proof import shown_by
from tests.tiny.truth import Truth, write


def test_closed_and_broken_at_every_step() -> None:
    """close() at each event, an exception around each native call; the next turn is as from cold.
    A break in the consumer is the same: the stream is closed when it is dropped."""
    shown_by(
        "tiny.test_interruptions.test_a_stream_left_at_any_event",
        "tiny.test_interruptions.test_an_exception_around_any_native_call",
        "tiny.test_interruptions.test_every_code_of_llama_decode",
        "tiny.test_interruptions.test_an_abort_in_the_middle_of_any_decode",
        "tiny.test_engine.test_an_abandoned_stream_frees_the_session",
    )


def test_a_slow_prompt_can_be_stopped(tiny_dir: Path) -> None:
    """The flag is checked for each piece of the prompt, and inside each decode."""
    truth = Truth(write(tiny_dir, "attention"))
    ids = [1, *(265 + i % 40 for i in range(400))]
    with Session(write(tiny_dir, "attention"), None, LoadOptions(n_batch=64)) as session:
        seen = 0
        for event in session.stream(ids, temperature=0.0, max_tokens=4):
            if isinstance(event, Prefill) and event.done >= 128:
                session.cancel()
                seen = event.done
        assert isinstance(event, Finished)
        assert (event.reason, event.token_ids, seen) == ("cancelled", (), 128)
        got = session.complete(ids, temperature=0.0, max_tokens=4)
        assert got.stats.cache_n == 128
        truth.check(ids, got.token_ids, temperature=0.0, max_tokens=4)
    truth.session.close()
    shown_by("tiny.test_interruptions.test_a_cancelled_prompt_keeps_what_was_read")


def test_ctrl_c_and_escape_leave_the_chat() -> None:
    """The reply stops, the chat stays."""
    shown_by(
        "tui.test_app.test_escape_stops_and_keeps_the_text",
        "tui.test_app.test_ctrl_c_twice_quits_and_once_does_not",
        "tiny.test_command.test_ctrl_c_keeps_what_was_made",
    )


def test_one_generation_at_a_time() -> None:
    """Stop, and a new message at once: the worker hears it, answers do not overlap."""
    shown_by("unit.test_chat.test_two_answers_never_run_at_once")


def test_quitting_in_mid_generation() -> None:
    """The process ends, the answer is kept."""
    shown_by(
        "tui.test_app.test_quitting_in_the_middle_keeps_the_answer",
        "unit.test_chat.test_closing_in_the_middle_keeps_the_answer",
    )


def test_closing_a_session_with_an_unfinished_stream(tiny_dir: Path) -> None:
    """The models are freed under a stream: it ends with a named error or at once, no crash."""
    session = Session(write(tiny_dir, "mamba"), write(tiny_dir, "mamba", noise=0.1))
    stream = session.stream([1, 270, 280], temperature=0.0, n_draft=3)
    for _ in range(3):
        next(stream)
    started = time.monotonic()
    session.close()
    assert time.monotonic() - started < 2
    with pytest.raises(LocalspecError, match="closed"):
        list(stream)
    with pytest.raises(LocalspecError, match="closed"):
        session.complete("the end")
