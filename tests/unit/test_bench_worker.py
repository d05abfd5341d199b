"""A function in a process of its own: whatever ends it, the parent gets a row that says so."""

from __future__ import annotations

import contextlib
import os
import pickle
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.bench.worker import rows_from_process
from localspec.errors import EngineError
from localspec.jsonl_file import Row
from localspec.processes import environment


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions below, in the child."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def echo(path: Path) -> Iterator[Row]:
    print("native code prints this")
    yield {"type": "echo", "path": os.fsencode(path).hex()}


def refuse() -> Iterator[Row]:
    yield {"type": "first"}
    raise EngineError("a reason")


def abort() -> Iterator[Row]:
    print("GGML_ASSERT", file=sys.stderr, flush=True)
    os.abort()
    yield {}


def be_killed_within_a_row() -> Iterator[Row]:
    yield {"type": "whole"}
    for fd in range(3, 64):  # the pipe to the parent
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, b"{")
    os.kill(os.getpid(), 9)


def wait() -> Iterator[Row]:
    yield {"type": "pid", "pid": os.getpid()}
    time.sleep(60)


def test_rows_come_as_they_are_made_and_nothing_else_that_is_printed() -> None:
    odd = Path(os.fsdecode(b"\xff odd"))
    (row,) = rows_from_process(echo, odd)
    assert row == {"type": "echo", "path": os.fsencode(odd).hex()}


def test_a_named_error_is_a_row() -> None:
    assert list(rows_from_process(refuse)) == [
        {"type": "first"},
        {"type": "failed", "error": "a reason"},
    ]


def test_a_native_abort_is_a_row() -> None:
    (row,) = rows_from_process(abort)
    assert row["type"] == "failed"
    assert "SIGABRT" in row["error"]
    assert "GGML_ASSERT" in row["error"]


def test_a_row_that_a_kill_cut_short_is_none_and_the_cause_is_told() -> None:
    whole, failed = rows_from_process(be_killed_within_a_row)
    assert whole == {"type": "whole"}
    assert failed["type"] == "failed"
    assert "memory runs out" in failed["error"]


def test_closing_the_rows_ends_the_process() -> None:
    rows = rows_from_process(wait)
    pid = next(rows)["pid"]
    rows.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_ends_when_its_parent_is_gone() -> None:
    """The parent's end of stdin closes, however the parent died."""
    process = subprocess.Popen(
        [sys.executable, "-m", "localspec.bench.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump((wait, ()), process.stdin)
    process.stdin.flush()
    process.stdout.readline()
    process.stdin.close()
    assert process.wait(timeout=30) == 1
    process.stdout.close()
