"""Two threads on one session, two processes on one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.conversation import Turn
from localspec.chat.saved import SavedChat
from localspec.decoding.events import Round
from localspec.errors import BusyError, CancelledError
from localspec.models.stored_costs import load_costs, save_costs
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from localspec.session.session_lock import Exclusive, FairLock
from tests.tiny.truth import Truth, write

PROMPT = [1, 270, 280, 265]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 30, "n_draft": 3}


@pytest.fixture
def waiting(tiny_dir: Path) -> Iterator[Session]:
    target, draft = write(tiny_dir, "attention"), write(tiny_dir, "attention", noise=0.1)
    with Session(target, draft, LoadOptions(when_busy="wait")) as session:
        yield session


def until(what: Any) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def n_waiting(session: Session) -> int:
    return len(session._exclusive.lock._waiting)


def test_waiters_are_served_in_the_order_of_their_coming(tiny_dir: Path, waiting: Session) -> None:
    truth = Truth(write(tiny_dir, "attention"))
    holder = waiting.stream(PROMPT, **GREEDY)
    next(holder)
    served: list[int] = []
    answers: dict[int, tuple[int, ...]] = {}

    def ask(i: int) -> None:
        with_prompt = [*PROMPT, 270 + i]
        for event in waiting.stream(with_prompt, **GREEDY):
            if i not in served:
                served.append(i)
            answers[i] = getattr(event, "token_ids", ())

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(5)]
    for i, thread in enumerate(threads):
        thread.start()
        until(lambda i=i: n_waiting(waiting) == i + 1)
    holder.close()  # type: ignore[attr-defined]
    for thread in threads:
        thread.join(20)
    assert served == list(range(5))
    for i, got in answers.items():
        truth.check([*PROMPT, 270 + i], got, **GREEDY)
    truth.session.close()


def test_waiters_can_be_sent_away_and_the_answer_stopped(waiting: Session) -> None:
    holder = waiting.stream(PROMPT, **GREEDY)
    next(holder)
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            waiting.complete(PROMPT, **GREEDY)
        except CancelledError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: n_waiting(waiting) == 3)
    waiting.cancel(waiting=True)
    for thread in threads:
        thread.join(20)
    assert len(errors) == 3
    assert list(holder)[-1].reason == "cancelled"  # type: ignore[union-attr]
    assert waiting.complete(PROMPT, **GREEDY).reason == "length"


def test_waiting_for_oneself_is_refused(waiting: Session) -> None:
    holder = waiting.stream(PROMPT, **GREEDY)
    next(holder)
    with pytest.raises(BusyError, match="waiting would never end"):
        waiting.complete(PROMPT)
    holder.close()  # type: ignore[attr-defined]
    assert waiting.complete(PROMPT, **GREEDY).reason == "length"


def test_without_the_option_a_second_caller_gets_an_error(tiny_dir: Path) -> None:
    with Session(write(tiny_dir, "attention")) as session:
        holder = session.stream(PROMPT, **GREEDY)
        next(holder)
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                session.complete(PROMPT)
            except BusyError as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(20)
        holder.close()  # type: ignore[attr-defined]
    assert len(errors) == 1


def test_a_waiter_that_is_interrupted_gives_its_place_back() -> None:
    lock = FairLock()
    assert lock.try_acquire()
    real = threading.Event.wait

    def interrupted(self: threading.Event, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.wait()
    assert threading.Event.wait is real
    assert not lock._waiting
    lock.release()
    assert not lock.locked()
    with Exclusive(wait=True):
        pass


def test_many_threads_at_once_lose_nothing(waiting: Session) -> None:
    counts: list[int] = []

    def ask(i: int) -> None:
        n = 0
        for event in waiting.stream([*PROMPT, 265 + i], **GREEDY):
            if isinstance(event, Round):
                n += sum(token.committed for token in event.tokens)
        counts.append(n)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counts == [30] * 12


_ASK = """
import sys, json
from pathlib import Path
import localspec.session.pair as pair
pair.physical_cores = lambda: 1
from localspec.session.session import Session
target, draft = map(Path, sys.argv[1:3])
found = []
for turn in range(3):
    with Session(target, draft) as session:
        for n in (None, 3):
            got = session.complete([1, 270, 280], temperature=0.0, max_tokens=20, n_draft=n)
            found.append(list(got.token_ids))
assert all(ids == found[0] for ids in found), found
print(json.dumps(found[0]))
"""


def processes(code: str, arguments: list[list[str]], folder: Path) -> list[str]:
    env = {**os.environ, "LOCALSPEC_CACHE": str(folder / "cache")}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *given],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for given in arguments
    ]
    told = [process.communicate(timeout=180) for process in running]
    for process, (_, errors) in zip(running, told, strict=True):
        assert process.returncode == 0, errors
    return [out.strip() for out, _ in told]


def test_two_processes_measure_store_and_answer_alike(tiny_dir: Path, tmp_path: Path) -> None:
    paths = [str(write(tiny_dir, "attention")), str(write(tiny_dir, "attention", noise=0.1))]
    first, second = processes(_ASK, [paths, paths], tmp_path)
    assert json.loads(first) == json.loads(second)
    stored = list((tmp_path / "cache" / "costs").iterdir())
    assert stored
    for file in stored:  # no partial file is left, none is damaged
        assert file.suffix == ".json"
        assert json.loads(file.read_text("utf-8"))["costs"]


_STORE = """
import sys
from pathlib import Path
from localspec.models.stored_costs import load_costs, save_costs
model, n = Path(sys.argv[1]), int(sys.argv[2])
for i in range(300):
    assert save_costs(model, {"role": "target"}, {"by": n, "i": i, "fill": [n] * 2000})
    found = load_costs(model, {"role": "target"})
    assert found is not None and set(found["fill"]) == {found["by"]}, found
"""


def test_two_processes_on_one_stored_table_read_whole_ones(tiny_dir: Path, tmp_path: Path) -> None:
    path = str(write(tiny_dir, "attention"))
    processes(_STORE, [[path, "1"], [path, "2"]], tmp_path)


def test_threads_on_one_stored_table(tiny_dir: Path) -> None:
    path = write(tiny_dir, "attention")
    failed: list[bool] = []

    def store(n: int) -> None:
        for _ in range(60):
            if not save_costs(path, {"role": "both"}, {"fill": [n] * 2000}):
                failed.append(True)
            found = load_costs(path, {"role": "both"})
            if found is None or len(set(found["fill"])) != 1:
                failed.append(True)

    threads = [threading.Thread(target=store, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed


_SAY = """
import sys
from pathlib import Path
from localspec.chat.conversation import Turn
from localspec.chat.saved import SavedChat
saved, n = SavedChat.open("both", Path(sys.argv[1])), sys.argv[2]
for i in range(100):
    saved.add(Turn(f"{n}-{i}", "root", "user", n * 20_000))
saved.close()
assert saved.broken is None
"""


def test_two_processes_that_go_on_with_one_chat_lose_no_turn(tmp_path: Path) -> None:
    saved = SavedChat(tmp_path, "both")
    saved.add(Turn("root", None, "user", "hello"))
    saved.close()
    processes(_SAY, [[str(tmp_path), "a"], [str(tmp_path), "b"]], tmp_path)
    read = SavedChat.open("both", tmp_path)
    assert read.n_skipped == 0
    assert len(read.conversation) == 201
    assert {turn.text[:1] for turn in read.conversation} == {"h", "a", "b"}
