"""What the chat's screen costs, and how fast it answers keys, in a pseudo-terminal.

    python benchmarks/chat.py speed [--pairs 6] [--n-gen 128]   # against `localspec run`
    python benchmarks/chat.py stop [--times 6]                  # Esc, and quitting in mid-answer
    python benchmarks/chat.py keys [--view inline]              # while 20,000 tokens stream

`speed`: the same greedy answer, by the same controller, in fresh processes of either kind, the
order turning from pair to pair; the figure is decoding speed alone, as both record it. `stop`: from
the key to the turn on the disk (the answer is over, kept and synced), and from Ctrl+Q to the end
of the process. `keys`: a scripted pair streams an answer into a chat that has 20,000 tokens
already; from writing a key to the terminal until the app has drawn it. What the app draws is read
and thrown away: a real terminal's own work is not in any figure.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

PROMPT = "Write a Python function that merges two sorted lists, with a docstring and three tests."
STREAM = """
The list is sorted **in place**, which takes `O(n log n)` comparisons; see the table.

| step | cost |
|---|---|
| merge | n |

```python
def merge(a, b):
    out = []
    while a and b:
        out.append((a if a[0] <= b[0] else b).pop(0))
    return out + a + b
```

1. First the lists are read, one element at a time.
2. Then the smaller one is taken, until one list is empty.
"""


class Drained:
    """A program in a pseudo-terminal of 120 × 40; what it writes is counted and thrown away."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            for name in ("COLUMNS", "LINES"):
                os.environ.pop(name, None)
            os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", **env}
            os.execv(command[0], command)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.watched = b"\xd0\xb6"
        self.n_seen = 0
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def wait(self) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._reader.join(2)
        os.close(self.fd)
        return code

    def _drain(self) -> None:
        while True:
            try:
                select.select([self.fd], [], [])
                new = os.read(self.fd, 1 << 16)
            except OSError:
                return
            if not new:
                return
            self.n_seen += new.count(self.watched)


def turns(folder: Path) -> list[dict]:
    """The complete lines of the chat's file that are turns."""
    found = []
    for path in (folder / "chats").glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            row = json.loads(line)
            if row["type"] == "turn":
                found.append(row)
    return found


def answer_of(folder: Path, n: int = 1, seconds: float = 300, every_s: float = 0.005) -> dict:
    """The n-th answer, once it is on the disk; looked for so rarely that it costs no speed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answers = [turn for turn in turns(folder) if turn["role"] == "assistant"]
        if len(answers) >= n:
            return answers[n - 1]
        time.sleep(every_s)
    raise SystemExit(f"no answer came in {seconds:.0f} s")


def options(args: argparse.Namespace) -> list[str]:
    return ["--target", args.target, "--draft", args.draft, "--temp", "0", "--ctx-size", "2048",
            "--max-tokens", str(args.n_gen)]  # fmt: skip


def run_once(args: argparse.Namespace) -> dict[str, float]:
    """The timings of `localspec run`."""
    command = [sys.executable, "-m", "localspec.cli.main", "run", "--json", *options(args), PROMPT]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    finished = json.loads(out.stdout.splitlines()[-1])
    return finished["timings"]


def chat_once(args: argparse.Namespace) -> dict[str, float]:
    """The timings of the chat, from the turn that it saved."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "localspec.cli.main", "chat", "--view", args.view,
                   *options(args), PROMPT]  # fmt: skip
        app = Drained(command, {"LOCALSPEC_DATA": folder})
        answer = answer_of(Path(folder), every_s=0.5)
        app.type(b"\x11")
        app.wait()
        return answer["timings"]


def speed(args: argparse.Namespace) -> None:
    run_once(args), chat_once(args)  # both warm the file cache; the costs are measured
    pairs = []
    for i in range(args.pairs):
        if i % 2:
            chat, run = chat_once(args), run_once(args)
        else:
            run, chat = run_once(args), chat_once(args)
        pairs.append((run, chat))
        print(
            f"run {spent(run)}   chat {spent(chat)}   ratio {rate(chat) / rate(run):.3f}",
            flush=True,
        )
    ratios = sorted(rate(chat) / rate(run) for run, chat in pairs)
    print(f"view {args.view}: chat / run {statistics.median(ratios):.3f} in the median of "
          f"{len(ratios)} pairs ({ratios[0]:.3f} to {ratios[-1]:.3f})")  # fmt: skip


def rate(timings: dict[str, float]) -> float:
    return timings["predicted_per_second"]


def spent(timings: dict[str, float]) -> str:
    """Tokens per second, and where the milliseconds of a token went."""
    parts = (
        timings[f"{name}_ms"] / timings["predicted_n"] for name in ("draft", "verify", "other")
    )
    draft, verify, other = parts
    return f"{rate(timings):5.2f} (draft {draft:.1f}, verify {verify:.1f}, other {other:.1f} ms)"


def stop(args: argparse.Namespace) -> None:
    stops, quits = [], []
    for _ in range(args.times):
        with tempfile.TemporaryDirectory() as folder:
            args.n_gen = 1000
            command = [sys.executable, "-m", "localspec.cli.main", "chat", "--view", args.view,
                       *options(args), PROMPT]  # fmt: skip
            app = Drained(command, {"LOCALSPEC_DATA": folder})
            _grown(Path(folder))
            pressed = time.monotonic()
            app.type(b"\x1b")
            answer_of(Path(folder))
            stops.append(time.monotonic() - pressed)
            app.type(b"Tell a long story about a lighthouse.\r")
            _grown(Path(folder), 2)
            pressed = time.monotonic()
            app.type(b"\x11")
            code = app.wait()
            quits.append(time.monotonic() - pressed)
            print(f"Esc {stops[-1]:.3f} s, quit {quits[-1]:.3f} s (exit code {code})", flush=True)
    print(f"Esc to the kept answer: median {statistics.median(stops):.3f} s, most {max(stops):.3f}")
    print(f"quit in mid-answer: median {statistics.median(quits):.3f} s, most {max(quits):.3f}")


def _grown(folder: Path, n_users: int = 1) -> None:
    """Wait until an answer grows: a piece of it is on the disk behind its question."""
    while True:
        time.sleep(0.02)
        for path in (folder / "chats").glob("*.jsonl"):
            kinds = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
            users = [i for i, row in enumerate(kinds) if row.get("role") == "user"]
            if len(users) >= n_users and kinds[-1]["type"] == "partial":
                return


def keys(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "scripted", "--view", args.view]
        app = Drained(command, {"LOCALSPEC_DATA": folder})
        time.sleep(4)
        took = []
        for _ in range(args.times * 20):
            before, pressed = app.n_seen, time.monotonic()
            app.type(b"\xd0\xb6")
            while app.n_seen == before and time.monotonic() - pressed < 5:
                time.sleep(0.0005)
            took.append(time.monotonic() - pressed)
            time.sleep(0.23)
        app.type(b"\x11")
        code = app.wait()
    took = sorted(1e3 * seconds for seconds in took)
    print(
        f"view {args.view}, {len(took)} keys while the answer streamed (exit code {code}): median "
        f"{statistics.median(took):.0f} ms, 95 % {took[int(0.95 * len(took))]:.0f} ms, most "
        f"{took[-1]:.0f} ms"
    )


def scripted(args: argparse.Namespace) -> None:
    """The app, with 20,000 tokens behind it, on a pair that streams 20,000 more."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from localspec.chat.chat import Chat
    from localspec.chat.conversation import Turn, new_id
    from localspec.chat.engine_thread import EngineThread
    from localspec.chat.saved import SavedChat
    from localspec.chat.settings import ChatSettings
    from localspec.tui.app import ChatApp
    from tests.scripted_chat import ScriptedSession, round_of, script

    pieces = [STREAM[i : i + 4] for i in range(0, len(STREAM), 4)]  # tokens of four characters
    saved, parent = SavedChat(), None
    for _ in range(20_000 // (4 * len(pieces)) + 1):
        for role, text in (("user", "How is a list sorted?"), ("assistant", STREAM * 4)):
            turn = Turn(new_id(), parent, role, text, model="scripted", reason="eos")
            saved.conversation.add(turn)
            parent = turn.id
    rounds, at = [], 0
    for index in range(20_000 // 4):
        three = [pieces[(at + i) % len(pieces)] for i in range(4)]
        at += 4
        wrong = " no" if index % 3 == 0 else None
        rounds.append(round_of(index, three[:3], three[3], rejected=wrong, depth=20_000 + at))

    class Paced(ScriptedSession):
        """Forty rounds a second, as a fast machine makes them."""

        def _play(self, events):  # type: ignore[no-untyped-def]
            for event in super()._play(events):
                time.sleep(1 / 40)
                yield event

    session = Paced([script(rounds)])
    chat = Chat(
        EngineThread(session.open), ChatSettings("/models/big.gguf", None, view=args.view), saved
    )
    code = ChatApp(chat, may_fetch=True, first="And how is it merged?").run()
    chat.close()
    sys.exit(code or 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["speed", "stop", "keys", "scripted"])
    parser.add_argument("--target", default="default")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--view", choices=["off", "inline", "inspector"], default="inline")
    parser.add_argument("--n-gen", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--times", type=int, default=6)
    args = parser.parse_args()
    {"speed": speed, "stop": stop, "keys": keys, "scripted": scripted}[args.what](args)


if __name__ == "__main__":
    main()
