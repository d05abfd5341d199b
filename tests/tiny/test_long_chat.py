"""A chat that outgrows a real (tiny) context goes on, says what it left out, and never crashes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.chat.chat import Chat
from localspec.chat.engine_thread import EngineThread, open_session
from localspec.chat.saved import SavedChat
from localspec.chat.settings import ChatSettings
from localspec.errors import ContextOverflowError
from tests.scripted_chat import wait
from tests.tiny.truth import write


@pytest.fixture(params=["attention", "mamba"])
def chat(request: pytest.FixtureRequest, tiny_dir: Path, tmp_path: Path) -> Iterator[Chat]:
    settings = ChatSettings(
        target=str(write(tiny_dir, request.param)),
        draft=str(write(tiny_dir, request.param, noise=0.1)),
        loading={"n_ctx": 512, "n_threads": 1},
        answering={"temperature": 0.0, "max_tokens": 24, "n_draft": 3, "drafter": "model"},
    )
    chat = Chat(EngineThread(open_session), settings, SavedChat(tmp_path, "long"))
    chat.conversation.system = "be brief"
    chat.load()
    wait(chat, seconds=60)
    assert chat.pair is not None, chat.failure
    yield chat
    chat.close()


def test_thirty_turns_in_a_context_of_512(chat: Chat) -> None:
    notices = []
    for i in range(30):
        chat.send(f"question {i}: and the other one is in the end")
        wait(chat, seconds=60)
        turn = chat.conversation.last("assistant")
        assert turn is not None
        assert turn.reason in ("length", "eos"), (i, turn.reason, chat.failure)
        notices += [note for note in turn.notes if "left out" in note]
    assert 1 <= len(notices) < 15
    assert "the context holds 512" in notices[0]
    assert "system prompt is kept" in notices[0]
    assert len(chat.conversation.path()) == 60, "nothing is removed from the conversation"


def test_a_message_that_no_context_holds_is_refused_by_name(chat: Chat) -> None:
    before = len(chat.conversation)
    with pytest.raises(
        ContextOverflowError, match=r"have [\d,]+ tokens, but the context holds 512"
    ):
        chat.send("x" * 3000)
    assert len(chat.conversation) == before, "it is not in the way of the next question"
    chat.send("short")
    wait(chat, seconds=60)
    turn = chat.conversation.last("assistant")
    assert turn is not None
    assert turn.text


def test_an_answer_that_filled_the_context_can_be_continued(chat: Chat) -> None:
    chat.settings = chat.settings.answer_with(max_tokens=None)
    for i in range(3):
        chat.send(f"question {i}")
        wait(chat, seconds=60)
    turn = chat.conversation.last("assistant")
    assert turn is not None
    assert turn.reason in ("context", "eos")
    if turn.reason == "context":
        n = len(turn.token_ids)
        with pytest.raises(ContextOverflowError, match="the answer so far"):
            chat.continue_answer()
        assert len(turn.token_ids) == n
