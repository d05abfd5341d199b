"""DD. Two calls on one context, through the API (the lines on logs and quiet mode are shown in the
tests of the engine and of the app).
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from localspec.errors import BusyError
from localspec.session.session import Session
from tests.cases.proof import shown_by

PROMPT = "the and of"
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 30, "n_draft": 3}


def test_two_threads_on_one_session_get_an_answer_or_a_busy_error(pair: Session) -> None:
    """Never a crash, never a mixture."""
    expected = pair.complete(PROMPT, **GREEDY).token_ids
    found: list[object] = []
    begin = threading.Barrier(4)

    def ask() -> None:
        begin.wait(10)
        for _ in range(5):
            try:
                found.append(pair.complete(PROMPT, **GREEDY).token_ids)
            except BusyError as error:
                found.append(type(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 20
    assert set(found) <= {expected, BusyError}
    assert expected in found
    assert pair.complete(PROMPT, **GREEDY).token_ids == expected


def test_a_plain_and_an_asynchronous_call_exclude_each_other(pair: Session) -> None:
    expected = pair.complete(PROMPT, **GREEDY).token_ids

    async def ask() -> None:
        stream = pair.stream(PROMPT, **GREEDY)
        next(stream)
        with pytest.raises(BusyError):
            await pair.acomplete(PROMPT, **GREEDY)
        stream.close()  # type: ignore[attr-defined]
        assert (await pair.acomplete(PROMPT, **GREEDY)).token_ids == expected

    asyncio.run(ask())


def test_what_changes_the_caches_is_refused_while_an_answer_runs(pair: Session) -> None:
    stream = pair.stream(PROMPT, **GREEDY)
    next(stream)
    for change in (
        pair.clear_cache,
        pair.forget,
        lambda: pair.save_state("/dev/null"),
        lambda: pair.restore_state("/dev/null"),
        lambda: pair.complete_many([PROMPT]),
        lambda: pair.target_rows([5], [6]),
    ):
        with pytest.raises(BusyError):
            change()
    stream.close()  # type: ignore[attr-defined]


def test_shown_elsewhere() -> None:
    shown_by(
        "tiny.test_engine.test_an_abandoned_stream_frees_the_session",
        "tiny.test_async.test_an_open_stream_makes_the_session_busy_and_no_deadlock",
        "unit.test_chat.test_two_answers_never_run_at_once",
    )
