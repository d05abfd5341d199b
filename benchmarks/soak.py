"""Random chat for a while: memory stays flat, nothing fails.

Asks, asks again, edits, continues, stops in the middle, changes drafter, verifier, temperature,
seed and draft length, begins new conversations: as a person would through the chat, at random.
The resident set size is read at the end of each conversation, after a garbage collection. It is
flat when the median of the last quarter of the readings is within 2 % of that of the first quarter
after the warm-up (the first fifth of the time).

    python benchmarks/soak.py [--target REF] [--draft REF] [--minutes 60] [--threads N] [--seed 0]

Exit code 1 when anything failed or memory grew. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from localspec.chat.chat import Chat
from localspec.chat.engine_protocol import AnswerEvent, Failed
from localspec.chat.engine_thread import EngineThread, open_session
from localspec.chat.saved import SavedChat
from localspec.chat.settings import ChatSettings
from localspec.decoding.events import Finished, Round
from localspec.errors import LocalspecError

_TOPICS = ("a lighthouse", "merging two sorted lists", "tides", "a parser for JSON", "Łódź 🌊")
_FORMS = ("Explain {}.", "Write a Python function about {}.", "A short poem about {}", "{}?")
_WARM_UP, _MOST_GROWTH = 0.2, 0.02


class Soak:
    """One chat and dice."""

    def __init__(self, chat: Chat, dice: random.Random, folder: Path) -> None:
        self.chat, self.dice, self.folder = chat, dice, folder
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self.n_tokens = 0

    def conversation(self) -> None:
        """Some turns, then a new one."""
        for _ in range(self.dice.randint(2, 10)):
            self._change()
            act = self.dice.choices(
                (self._ask, self._retry, self._edit, self._continue), (6, 2, 1, 1)
            )[0]
            try:
                act()
                self._follow()
            except LocalspecError as error:
                self._tell(act.__name__, error)
            self.counts[act.__name__.strip("_")] += 1
        number = sum(1 for _ in self.folder.iterdir())
        self.chat.start_over(SavedChat(self.folder, f"chat-{number}"))

    def _ask(self) -> None:
        topic = self.dice.choice(_TOPICS)
        text = self.dice.choice(_FORMS).format(topic)
        if self.dice.random() < 0.1:
            text += " " + " ".join([topic] * self.dice.randint(50, 400))
        self.chat.send(text)

    def _retry(self) -> None:
        if self.chat.conversation.last("user") is not None:
            self.chat.retry()

    def _edit(self) -> None:
        questions = [turn for turn in self.chat.conversation.path() if turn.role == "user"]
        if questions:
            self.chat.edit(self.dice.choice(questions).id, f"And {self.dice.choice(_TOPICS)}?")

    def _continue(self) -> None:
        head = self.chat.conversation.turns.get(self.chat.conversation.head or "")
        if head is not None and head.role == "assistant" and head.reason != "eos":
            self.chat.continue_answer()

    def _change(self) -> None:
        if self.dice.random() < 0.5:
            self.chat.settings = self.chat.settings.answer_with(
                max_tokens=self.dice.choice([1, 20, 60, 120]),
                temperature=self.dice.choice([0.0, 0.7, 1.2]),
                seed=self.dice.choice([None, 1]),
                drafter=self.dice.choice(["auto", "model", "ngram", "splice", "none"]),
                verifier=self.dice.choice(["auto", "match", "rejection", "block"]),
                n_draft=self.dice.choice([None, None, 1, 4, 9]),
            )

    def _follow(self) -> None:
        """To the end of the answer, or stop it on the way."""
        stop_after = self.dice.randint(0, 12) if self.dice.random() < 0.25 else None
        n_rounds = 0
        while self.chat.is_busy:
            for reply, _ in self.chat.poll():
                if isinstance(reply, Failed):
                    self._tell("answer", reply.error)
                elif isinstance(reply, AnswerEvent) and isinstance(reply.event, Round):
                    n_rounds += 1
                elif isinstance(reply, AnswerEvent) and isinstance(reply.event, Finished):
                    self.n_tokens += len(reply.event.token_ids)
                    self.counts[f"ended by {reply.event.reason}"] += 1
            if self.chat.live and stop_after is not None and n_rounds >= stop_after:
                self.chat.stop()
            time.sleep(0.005)

    def _tell(self, where: str, error: object) -> None:
        self.errors.append(f"{where}: {type(error).__name__}: {error}")


def resident_bytes() -> int:
    """Of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(readings: list[tuple[float, int]], total_s: float) -> float | None:
    """Last quarter over first quarter, less 1; None with too few readings after the warm-up."""
    sizes = [size for at, size in readings if at >= _WARM_UP * total_s]
    quarter = len(sizes) // 4
    if not quarter:
        return None
    return statistics.median(sizes[-quarter:]) / statistics.median(sizes[:quarter]) - 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="default")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--n-ctx", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    loading = {"n_ctx": given.n_ctx, **({"n_threads": given.threads} if given.threads else {})}
    settings = ChatSettings(given.target, given.draft, loading)
    with tempfile.TemporaryDirectory() as folder:
        chat = Chat(EngineThread(open_session), settings, SavedChat(Path(folder), "first"))
        soak = Soak(chat, random.Random(given.seed), Path(folder))
        chat.load()
        soak._follow()
        if chat.pair is None:
            print(f"no pair: {chat.failure}", file=sys.stderr)
            return 2
        total_s = given.minutes * 60.0
        started = time.monotonic()
        readings: list[tuple[float, int]] = []
        while (at := time.monotonic() - started) < total_s:
            soak.conversation()
            readings.append((at, resident_bytes()))
            if len(readings) % 10 == 1:
                size = readings[-1][1] / 1e6
                print(f"{at / 60:6.1f} min  {size:9.1f} MB  {soak.n_tokens:,} tokens", flush=True)
        ended = chat.close()
        grown = growth(readings, total_s)
        is_flat = grown is not None and abs(grown) <= _MOST_GROWTH
        print(
            json.dumps(
                {
                    "minutes": round((time.monotonic() - started) / 60.0, 2),
                    "n_conversations": len(readings),
                    "n_tokens": soak.n_tokens,
                    "counts": dict(soak.counts),
                    "errors": soak.errors,
                    "rss_mb": [
                        round(size / 1e6, 1) for _, size in readings[:: max(1, len(readings) // 12)]
                    ],
                    "rss_growth": grown,
                    "is_flat": is_flat,
                    "ended": ended,
                },
                indent=1,
            )
        )
    return 0 if is_flat and not soak.errors and ended else 1


if __name__ == "__main__":
    sys.exit(main())
