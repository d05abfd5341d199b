"""A worker process as rows: whatever ends it, the parent gets a row that says so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from localspec.bench.worker_process import worker_rows

HEAD = "import json, os, sys, time\njob = sys.stdin.readline().strip()\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that Python finds as the module `scripted_worker`."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "scripted_worker.py"


def test_rows_come_as_they_are_written(module: Path) -> None:
    module.write_text(HEAD + "print(json.dumps({'type': 'echo', 'job': job}))")
    assert list(worker_rows("scripted_worker", "work")) == [{"type": "echo", "job": "work"}]


def test_a_native_abort_is_a_row(module: Path) -> None:
    module.write_text(HEAD + "print('GGML_ASSERT', file=sys.stderr, flush=True); os.abort()")
    (row,) = worker_rows("scripted_worker", "work")
    assert row["type"] == "failed"
    assert "SIGABRT" in row["error"]
    assert "GGML_ASSERT" in row["error"]


def test_one_that_the_system_killed_for_memory_says_so(module: Path) -> None:
    module.write_text(HEAD + "os.kill(os.getpid(), 9)")
    (row,) = worker_rows("scripted_worker", "work")
    assert "memory runs out" in row["error"]


def test_a_row_that_a_kill_cut_short_is_none(module: Path) -> None:
    cut = "os.write(1, b'{}' + bytes([10]) + b'{'); os.kill(os.getpid(), 9)"
    module.write_text(HEAD + cut)
    whole, failed = worker_rows("scripted_worker", "work")
    assert whole == {}
    assert failed["type"] == "failed"


def test_closing_the_rows_ends_the_process(module: Path) -> None:
    module.write_text(
        HEAD + "print(json.dumps({'type': 'pid', 'pid': os.getpid()}), flush=True); time.sleep(60)"
    )
    rows = worker_rows("scripted_worker", "work")
    pid = next(rows)["pid"]
    rows.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    """The parent's end of stdin closes, however the parent died."""
    code = (
        "import sys, threading, time\nsys.stdin.readline()\n"
        "from localspec.bench.worker import _end_with_parent\n"
        "threading.Thread(target=_end_with_parent, daemon=True).start()\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"job\n")
    process.stdin.flush()
    process.stdout.readline()
    process.stdin.close()
    give_up = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.02)
    assert process.poll() == 1
    process.stdout.close()
