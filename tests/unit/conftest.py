"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.chat import Chat
from localspec.chat.engine_thread import EngineThread
from localspec.chat.saved import SavedChat
from localspec.chat.settings import ChatSettings
from tests.scripted_chat import ScriptedSession, wait


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Chat]]:
    chats: list[Chat] = []

    def make(session: ScriptedSession, *, load: bool = True, **settings: Any) -> Chat:
        saved = SavedChat(tmp_path, f"c{len(chats)}")
        chat = Chat(EngineThread(session.open), ChatSettings(**settings), saved)
        chats.append(chat)
        if load:
            chat.load()
            wait(chat)
        return chat

    yield make
    for chat in chats:
        chat.close()
