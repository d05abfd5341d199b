"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.chat import Chat
from localspec.chat.engine_thread import Speaker
from localspec.chat.saved import SavedChat
from localspec.chat.settings import ChatSettings
from tests.scripted_talker import ScriptedTalker
from tests.unit.talking import wait


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Chat]]:
    chats: list[Chat] = []

    def make(talker: ScriptedTalker, *, load: bool = True, **settings: Any) -> Chat:
        chat = Chat(
            Speaker(talker.open), ChatSettings(**settings), SavedChat(tmp_path, f"c{len(chats)}")
        )
        chats.append(chat)
        if load:
            chat.load()
            wait(chat, lambda: not chat.is_busy)
        return chat

    yield make
    for chat in chats:
        chat.close()
