"""A function run in a process of its own, as an iterator of the rows that it yields.

The benchmark loads every pair this way: the peak memory of the process is then the pair's, and a
file that crashes the engine fails one pair and not the sweep. The function and its arguments go to
the child's stdin by pickle, rows come back on its stdout as JSON lines. stdin stays open as long as
the parent lives; when it closes, the child ends. Knows nothing of what the rows mean.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from typing import IO

from localspec.errors import LocalspecError
from localspec.jsonl_file import Row
from localspec.processes import death, environment

__all__ = ["rows_from_process"]

_TAIL = 400  # characters of what a crashed process said last


def rows_from_process(
    function: Callable[..., Iterator[Row]], *args: object
) -> Generator[Row, None, None]:
    """Call `function(*args)` in a fresh process and yield its rows as they come.

    function: of a module that can be imported, so that it can be pickled. A LocalspecError in it,
    and a process that ends badly, give a last row of type `failed` with the reason in `error`.
    Closing the iterator ends the process at once.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "localspec.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment(),
            start_new_session=True,  # Ctrl-C on the terminal reaches the parent alone
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((function, args), process.stdin)
            process.stdin.flush()
            for line in process.stdout:
                if line.endswith(b"\n"):  # else it was killed within the line
                    yield json.loads(line)
            code = process.wait()
            if code:
                yield {"type": "failed", "error": _reason(code, said)}
        except BrokenPipeError:
            yield {"type": "failed", "error": _reason(process.wait(), said)}
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def _reason(code: int, said: IO[bytes]) -> str:
    said.seek(0)
    text = said.read().decode("utf-8", "replace").strip()
    if "Traceback (most recent call last)" in text:  # a bug: its last line is what it is
        text = text.splitlines()[-1]
    tail = text if len(text) <= _TAIL else f"…{text[-_TAIL:]}"
    return f"its process {death(code)}" + (f"; it said: {tail}" if tail else "")


def _main() -> None:
    """The child: ignores Ctrl-C, which is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    function, args = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # what native code prints is no row
        try:
            for row in function(*args):
                print(json.dumps(row, allow_nan=False), file=out, flush=True)
        except LocalspecError as error:
            print(json.dumps({"type": "failed", "error": str(error)}), file=out, flush=True)


def _end_with_parent() -> None:
    while os.read(0, 1):  # not through sys.stdin, whose lock would be held when Python ends
        pass
    os._exit(1)


if __name__ == "__main__":
    _main()
