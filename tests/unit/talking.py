"""What tests of the chat without a screen share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from localspec.chat.chat import Chat


class Front:
    """Notes what commands ask for."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.said: list[str] = []
        self.calls: list[tuple[Any, ...]] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: self.calls.append((name, *given))


def wait(chat: Chat, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not until():
        assert time.monotonic() < deadline, "the chat did not get there"
        chat.poll()
        time.sleep(0.002)


def ask(chat: Chat, text: str) -> str:
    chat.send(text)
    wait(chat, lambda: not chat.is_busy)
    turn = chat.conversation.last("assistant")
    assert turn is not None
    return turn.text
