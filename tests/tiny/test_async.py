"""The same answers for asyncio: equal to the plain ones, stoppable anywhere, bounded ahead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import localspec
from localspec.decoding.events import Finished, Prefill, Round
from localspec.errors import BusyError, EmptyPromptError, InvalidOptionError
from localspec.session.async_answers import N_AHEAD, DecodingThread, decoding_thread
from localspec.session.session import Session

PROMPT = "the and of"
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40, "n_draft": 3}
LONG: dict[str, Any] = {"temperature": 0.0, "n_draft": 3}


@pytest.fixture
def cold(pair: Session) -> Iterator[localspec.Completion]:
    """What a cold run answers, whatever a test did to the caches before."""
    decoding_thread.submit(lambda: None).result(10)  # a stream that was left is being closed there
    pair.clear_cache()
    yield pair.complete(PROMPT, **GREEDY)
    pair.clear_cache()


def same_shape(events: list[localspec.Event]) -> list[object]:
    """Events without their times."""
    return [
        (event.index, [(t.id, t.verdict, t.p, t.q) for t in event.tokens])
        if isinstance(event, Round)
        else (event.done, event.total)
        if isinstance(event, Prefill)
        else (event.reason, event.text, event.token_ids)
        for event in events
    ]


def test_the_events_are_the_plain_ones(pair: Session) -> None:
    async def read() -> list[localspec.Event]:
        return [event async for event in pair.astream(PROMPT, **GREEDY)]

    pair.clear_cache()
    plain = list(pair.stream(PROMPT, **GREEDY))
    pair.clear_cache()
    assert same_shape(asyncio.run(read())) == same_shape(plain)


def test_acomplete_and_achat_are_complete_and_chat(
    pair: Session, cold: localspec.Completion
) -> None:
    messages = [{"role": "user", "content": "and"}]

    async def ask() -> tuple[localspec.Completion, localspec.Completion]:
        return await pair.acomplete(PROMPT, **GREEDY), await pair.achat(messages, **GREEDY)

    completed, chatted = asyncio.run(ask())
    assert completed.token_ids == cold.token_ids
    assert chatted.token_ids == pair.chat(messages, **GREEDY).token_ids


def test_calls_of_many_tasks_wait_for_each_other(pair: Session, cold: localspec.Completion) -> None:
    async def ask() -> list[localspec.Completion]:
        return await asyncio.gather(*(pair.acomplete(PROMPT, **GREEDY) for _ in range(5)))

    assert {result.token_ids for result in asyncio.run(ask())} == {cold.token_ids}


def test_an_open_stream_makes_the_session_busy_and_no_deadlock(pair: Session) -> None:
    async def ask() -> None:
        async for _ in pair.astream(PROMPT, **LONG):
            with pytest.raises(BusyError):
                await pair.acomplete(PROMPT, **GREEDY)
            return

    asyncio.run(asyncio.wait_for(ask(), 20))


@pytest.mark.parametrize("n_events", [0, 1, 2, 3, 7])
def test_leaving_the_loop_frees_the_session(
    pair: Session, cold: localspec.Completion, n_events: int
) -> None:
    async def ask() -> localspec.Completion:
        n = 0
        async for _ in pair.astream(PROMPT, **LONG):
            n += 1
            if n >= n_events:
                break
        return await pair.acomplete(PROMPT, **GREEDY)  # at once: no BusyError

    assert asyncio.run(ask()).token_ids == cold.token_ids


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.01, 0.05])
@pytest.mark.parametrize("streaming", [False, True])
def test_cancelling_the_task_stops_the_decode_and_leaves_clean_caches(
    pair: Session, cold: localspec.Completion, delay_s: float, streaming: bool
) -> None:
    async def read() -> None:
        if streaming:
            async for _ in pair.astream(PROMPT, **LONG):
                pass
        else:
            await pair.acomplete(PROMPT, **LONG)

    async def ask() -> localspec.Completion:
        task = asyncio.create_task(read())
        await asyncio.sleep(delay_s)
        was_over = task.done()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        else:
            assert was_over, "the task was cancelled and went on"
        assert not pair._exclusive.lock.locked()
        ids = [*pair.encode(PROMPT)]
        kept = pair._target.ids
        assert kept[: len(ids)] == ids[: len(kept)]
        return await pair.acomplete(PROMPT, **GREEDY)

    assert asyncio.run(ask()).token_ids == cold.token_ids


def test_a_time_limit_cuts_a_long_answer(tiny_target: Path, tiny_draft: Path) -> None:
    """1,000 tokens of a tiny model take longer than the limit, by far."""
    with localspec.load(tiny_target, tiny_draft) as session:

        async def ask() -> localspec.Completion:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.acomplete(PROMPT, **LONG), 0.02)
            assert len(session._target.ids) < session.n_ctx // 2, "it went on to the end"
            return await session.acomplete(PROMPT, **GREEDY)

        assert asyncio.run(ask()).reason == "length"


def test_a_slow_reader_holds_the_engine_back(pair: Session) -> None:
    """It runs N_AHEAD events ahead of the reader, then it waits."""

    async def ask() -> tuple[int, int]:
        events = pair.astream(PROMPT, max_tokens=300, temperature=0.0, n_draft=0)
        await events.__anext__()
        for _ in range(50):  # far longer than N_AHEAD steps take
            await asyncio.sleep(0.01)
        n_ready = len(events._ready)
        n_decoded = len(pair._target.ids)
        await events.aclose()
        return n_ready, n_decoded

    n_ready, n_decoded = asyncio.run(ask())
    assert n_ready <= N_AHEAD
    assert n_decoded <= len(pair.encode(PROMPT)) + N_AHEAD


def test_errors_come_at_the_first_event(pair: Session) -> None:
    async def ask(prompt: Any, **options: Any) -> None:
        async for _ in pair.astream(prompt, **options):
            pass

    with pytest.raises(EmptyPromptError):
        asyncio.run(ask(""))
    with pytest.raises(InvalidOptionError, match="did you mean temperature"):
        asyncio.run(ask(PROMPT, temprature=1.0))
    assert pair.complete(PROMPT, max_tokens=1).stats.predicted_n == 1


def test_two_tasks_cannot_read_one_answer(pair: Session) -> None:
    async def ask() -> None:
        events = pair.astream(PROMPT, **GREEDY)
        first = asyncio.create_task(events.__anext__())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="two tasks"):
            await events.__anext__()
        await first
        await events.aclose()

    asyncio.run(ask())


def test_closing_the_session_stops_what_is_open(tiny_target: Path) -> None:
    async def ask() -> None:
        session = localspec.load(tiny_target)
        events = session.astream(PROMPT, **LONG)
        await events.__anext__()
        session.close()

    asyncio.run(ask())


def test_one_thread_decodes_for_all(pair: Session) -> None:
    names: set[str] = set()
    decode = pair._target.decode

    def noting(*arguments: Any, **named: Any) -> Any:
        names.add(threading.current_thread().name)
        return decode(*arguments, **named)

    async def ask() -> None:
        await asyncio.gather(*(pair.acomplete(PROMPT, **GREEDY) for _ in range(3)))
        async for _ in pair.astream(PROMPT, **GREEDY):
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair._target, "decode", noting)
        asyncio.run(ask())
    assert names == {"localspec"}


def test_work_is_done_in_order_and_failures_stay_with_their_future() -> None:
    thread = DecodingThread()
    done: list[int] = []

    def fail() -> None:
        raise ValueError("no")

    futures = [thread.submit(lambda i=i: done.append(i)) for i in range(3)]  # type: ignore[misc]
    failed = thread.submit(fail)
    assert isinstance(failed.exception(5), ValueError)
    futures.append(thread.submit(lambda: done.append(3)))
    for future in futures:
        future.result(5)
    assert done == [0, 1, 2, 3]
    assert not thread.is_current()
    thread._stop()
    assert decoding_thread is not thread


def test_the_last_event_is_the_end(pair: Session) -> None:
    async def ask() -> list[localspec.Event]:
        events = pair.astream(PROMPT, max_tokens=0)
        found = [event async for event in events]
        found += [event async for event in events]
        return found

    found = asyncio.run(ask())
    assert [type(event) for event in found] == [Finished]
