"""All that passes between the chat and the engine behind it: requests one way, replies the other.

Plain data in both directions. The chat never waits for an answer, and knows no session, model or
thread; whatever implements ChatEngine may run anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from localspec.decoding.events import Event

__all__ = [
    "AnswerEvent",
    "AnswerStarted",
    "ChatEngine",
    "Downloading",
    "Failed",
    "Generate",
    "LoadedPair",
    "Loading",
    "OpenPair",
    "Reply",
]


@dataclass(frozen=True, slots=True)
class OpenPair:
    """Load a pair in place of the loaded one. draft: a reference, `auto`, or None.

    options: as for localspec.load.
    """

    target: str
    draft: str | None
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Generate:
    """Answer the messages. id: returned with every reply. options: fields of Options.

    continued: token ids of an unfinished answer, which the new tokens follow.
    """

    id: str
    messages: Sequence[dict[str, str]]
    options: dict[str, Any]
    continued: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Loading:
    """A step of OpenPair that takes time. words: which."""

    words: str


@dataclass(frozen=True, slots=True)
class Downloading:
    """Progress of a download, in bytes. total: 0 when unknown."""

    label: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """OpenPair is done. notes: what a person should know about this pair.

    why_no_draft_model: why drafting with the draft model does not pay here; None when it does.
    """

    target_path: Path
    draft_path: Path | None
    device: str
    n_threads: int
    n_ctx: int
    exact: bool
    notes: tuple[str, ...] = ()
    why_no_draft_model: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """The prompt of answer `id` is rendered. opens_thinking: it ends inside a thinking block."""

    id: str
    opens_thinking: bool


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """An event of answer `id`, Finished the last."""

    id: str
    event: Event


@dataclass(frozen=True, slots=True)
class Failed:
    """A request failed. id: of the answer, None for OpenPair. is_bug: it was no named error."""

    error: str
    id: str | None = None
    is_bug: bool = False


Reply: TypeAlias = Loading | Downloading | LoadedPair | AnswerStarted | AnswerEvent | Failed


class ChatEngine(Protocol):
    """Runs one request after the other."""

    def open(self, request: OpenPair) -> None:
        """Begin to load a pair: Loading and Downloading follow, then LoadedPair or Failed."""

    def generate(self, request: Generate) -> None:
        """Begin an answer: AnswerStarted and AnswerEvents follow, or Failed."""

    def cancel(self) -> None:
        """End the running answer, which finishes as `cancelled`, or a load at its next step."""

    def count_tokens(self, prompt: str | Sequence[dict[str, str]]) -> int | None:
        """Tokens of a text, or of messages in the model's template; None while no pair is loaded.

        Callable from any thread. Raises a LocalspecError for messages that the template refuses.
        """

    def receive(self) -> Reply | None:
        """The next reply, in order; None when there is none now. Never waits."""

    def close(self) -> bool:
        """Cancel, free the models, end. False when that took too long."""
