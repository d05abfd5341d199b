"""A worker process as an iterator of rows. Knows nothing of what the rows mean."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Generator
from typing import IO, Any

from localspec.processes import death, environment

__all__ = ["worker_rows"]

_TAIL = 400  # characters of what a crashed process said last


def worker_rows(module: str, job: str) -> Generator[dict[str, Any], None, None]:
    """Start `module` on a job (one line) and yield its rows as they come.

    A process that ends badly gives a last row of type `failed` with what it said. Closing the
    iterator ends the process at once.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment(),
            start_new_session=True,  # Ctrl-C on the terminal reaches the parent alone
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(job.encode() + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                if line.endswith(b"\n"):  # else it was killed within the line
                    yield json.loads(line)
            code = process.wait()
            if code:
                yield {"type": "failed", "error": _words(code, said)}
        except BrokenPipeError:
            yield {"type": "failed", "error": _words(process.wait(), said)}
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def _words(code: int, said: IO[bytes]) -> str:
    said.seek(0)
    text = said.read().decode("utf-8", "replace").strip()
    if "Traceback (most recent call last)" in text:  # a bug: its last line is what it is
        text = text.splitlines()[-1]
    tail = text if len(text) <= _TAIL else f"…{text[-_TAIL:]}"
    return f"its process {death(code)}" + (f"; it said: {tail}" if tail else "")
