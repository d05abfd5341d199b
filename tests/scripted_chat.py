"""Chats without a model: a session that plays what a test wrote down, and helpers to ask it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from localspec.chat.chat import Chat
from localspec.chat.engine_protocol import OpenPair
from localspec.decoding.events import (
    Alternative,
    Event,
    Finished,
    Prefill,
    Round,
    RoundToken,
    Stats,
)
from localspec.errors import BusyError, LocalspecError

__all__ = ["RecordingFrontEnd", "ScriptedSession", "ask", "plain", "round_of", "script", "wait"]


def token(text: str, verdict: Any, source: str = "model", p: float = 0.9) -> RoundToken:
    """One token; its id is made from its text."""
    top = (Alternative(1, text.encode(), p), Alternative(2, b" other", 1 - p))
    return RoundToken(
        id=sum(text.encode()) % 60 + 3,
        piece=text.encode(),
        source=source,
        verdict=verdict,
        p=p,
        q=0.8 if source == "model" else None,
        p_raw=p,
        q_raw=0.8 if source == "model" else None,
        p_top=top,
        q_top=top if source == "model" else (),
    )


def round_of(
    index: int,
    accepted: Sequence[str],
    own: str,
    *,
    rejected: str | None = None,
    discarded: Sequence[str] = (),
    source: str = "model",
    depth: int = 10,
    text: str | None = None,
) -> Round:
    """A round: accepted guesses, perhaps a rejected one with some behind it, the target's own."""
    tokens = [token(piece, "accepted", source) for piece in accepted]
    if rejected is not None:
        tokens.append(token(rejected, "rejected", source, p=0.05))
    tokens += [token(piece, "discarded", source) for piece in discarded]
    tokens.append(token(own, "correction" if rejected is not None else "bonus", "target"))
    n_draft = len(tokens) - 1
    return Round(
        index=index,
        n_draft=n_draft,
        n_accepted=len(accepted),
        tokens=tuple(tokens),
        text="".join(accepted) + own if text is None else text,
        draft_s=0.02 * n_draft,
        verify_s=0.1,
        elapsed_s=0.02 * n_draft + 0.1,
        depth=depth,
        worth=tuple(0.3 * k for k in range(n_draft + 2)) if n_draft else (0.0,),
        plain_s=0.1 * (len(accepted) + 1),
    )


def plain(index: int, own: str, depth: int = 10) -> Round:
    """A round without a draft."""
    return round_of(index, (), own, depth=depth)


def script(rounds: Sequence[Round], reason: Any = "eos", **stats: Any) -> list[Event]:
    """The events of one answer."""
    text = "".join(round_.text for round_ in rounds)
    ids = tuple(t.id for round_ in rounds for t in round_.tokens if t.committed)
    elapsed = sum(round_.elapsed_s for round_ in rounds)
    accepted = sum(round_.n_accepted for round_ in rounds)
    rejected = sum(t.verdict == "rejected" for round_ in rounds for t in round_.tokens)
    given: dict[str, Any] = {
        "prompt_n": 10,
        "prompt_s": 0.5,
        "predicted_n": len(ids),
        "predicted_s": elapsed,
        "draft_n": sum(round_.n_draft for round_ in rounds),
        "draft_n_accepted": accepted,
        "draft_n_rejected": rejected,
        "n_passes": len(rounds),
        "draft_s": sum(round_.draft_s for round_ in rounds),
        "verify_s": sum(round_.verify_s for round_ in rounds),
        "plain_s": sum(round_.plain_s or 0.0 for round_ in rounds),
        "drafter": "splice",
        **stats,
    }
    return [Prefill(0, 10), Prefill(9, 10), *rounds, Finished(reason, text, ids, Stats(**given))]


class ScriptedSession:
    """Plays one script for each question, the last one for all further ones.

    gate: when given, every round waits for a permit (gate.release()). failure: raised instead.
    """

    n_ctx = 4096
    n_threads = 2
    device = "CPU"
    exact = False

    def __init__(
        self,
        scripts: Sequence[Sequence[Event]] = (),
        *,
        gate: threading.Semaphore | None = None,
        failure: Exception | None = None,
        why_no_draft_model: str | None = None,
        notes: Sequence[str] = (),
        name: str = "big-Q4_K_M",
    ) -> None:
        self._scripts = list(scripts) or [script([plain(0, "Hello")])]
        self._gate = gate
        self.failure = failure
        self._why_no_draft_model = why_no_draft_model
        self.notes = list(notes)
        self.target_path = Path(f"/models/{name}.gguf")
        self.draft_path: Path | None = Path("/models/small-Q4_0.gguf")
        self.asked: list[tuple[Any, dict[str, Any]]] = []
        self.request: OpenPair | None = None
        self.is_closed = False
        self._cancelled = threading.Event()
        self._busy = threading.Lock()
        self.prompt_end = ""

    def open(self, request: OpenPair, reply: Callable[[Any], None]) -> ScriptedSession:
        """Opens itself for an EngineThread."""
        self.request = request
        self.is_closed = False
        if isinstance(self.failure, LocalspecError) and not self.asked:
            raise self.failure
        return self

    def prepare(self, on_step: Callable[[str], None]) -> str | None:
        on_step("measuring …")
        return self._why_no_draft_model

    def stream(self, prompt: Any, **options: Any) -> Iterator[Event]:
        if not self._busy.acquire(blocking=False):
            raise BusyError("busy")
        self._cancelled.clear()
        self.asked.append((prompt, options))
        events = self._scripts[min(len(self.asked), len(self._scripts)) - 1]
        return self._play(events)

    def _play(self, events: Sequence[Event]) -> Iterator[Event]:
        said: list[Round] = []
        try:
            for event in events:
                if isinstance(event, Exception):
                    raise event
                if isinstance(event, Round) and self._gate is not None:
                    while not self._gate.acquire(timeout=0.01):
                        if self._cancelled.is_set():
                            break
                if self._cancelled.is_set() and not isinstance(event, Prefill):
                    yield script(said, "cancelled")[-1]
                    return
                if isinstance(event, Round):
                    said.append(event)
                yield event
        finally:
            self._busy.release()

    def encode(self, prompt: Any) -> list[int]:
        text = prompt if isinstance(prompt, str) else "".join(m["content"] for m in prompt)
        return list(range(len(text.split())))

    def render(self, messages: Sequence[Any]) -> str:
        return "".join(message["content"] for message in messages) + self.prompt_end

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self.is_closed = True


class RecordingFrontEnd:
    """Records what commands ask for."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.said: list[str] = []
        self.calls: list[tuple[Any, ...]] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: self.calls.append((name, *given))


def wait(chat: Chat, until: Callable[[], bool] | None = None, seconds: float = 5) -> None:
    """Until the condition holds; by default, until nothing is loaded or written."""
    deadline = time.monotonic() + seconds
    while not (until() if until is not None else not chat.is_busy):
        assert time.monotonic() < deadline, "the chat did not get there"
        chat.poll()
        time.sleep(0.002)


def ask(chat: Chat, text: str) -> str:
    """The answer."""
    chat.send(text)
    wait(chat)
    turn = chat.conversation.last("assistant")
    assert turn is not None
    return turn.text
