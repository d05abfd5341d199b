"""DD. Engine logs and threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cases.proof import shown_by
from tests.tiny.truth import write

_LOAD = """
import sys, threading
from pathlib import Path
import localspec.session.pair as pair
pair.physical_cores = lambda: 1
from localspec.session.session import Session
paths = [Path(path) for path in sys.argv[1:3]]
done = []
def load():
    with Session(*paths) as session:
        done.append(session.complete([1, 270], n_draft=3, temperature=0.0, max_tokens=8).reason)
thread = threading.Thread(target=load)
thread.start()
print("drawn meanwhile", flush=True)
thread.join()
assert done == ["length"], done
print("drawn after", flush=True)
"""


def test_nothing_native_reaches_the_terminal(tiny_dir: Path, tmp_path: Path) -> None:
    """Loading in a thread while another writes: standard error stays empty, and standard output,
    which is never swapped, loses nothing."""
    import os

    paths = [str(write(tiny_dir, "mamba")), str(write(tiny_dir, "mamba", noise=0.1))]
    env = {**os.environ, "LOCALSPEC_CACHE": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", _LOAD, *paths], capture_output=True, text=True, env=env, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "drawn meanwhile\ndrawn after\n"
    assert ran.stderr == ""


def test_two_calls_on_one_session() -> None:
    """BusyError, or a turn by option; two contexts of one thread each are never mixed."""
    shown_by(
        "tiny.test_concurrency.test_without_the_option_a_second_caller_gets_an_error",
        "tiny.test_concurrency.test_waiters_are_served_in_the_order_of_their_coming",
        "unit.test_chat.test_two_answers_never_run_at_once",
    )
