"""The chat line by line, on a scripted pair."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from localspec.chat.chat import Chat
from localspec.chat.engine_thread import EngineThread
from localspec.chat.saved import SavedChat
from localspec.chat.settings import ChatSettings
from localspec.cli.line_chat import LineChat
from tests.scripted_chat import ScriptedSession


def run(lines: str, saved: SavedChat, monkeypatch: pytest.MonkeyPatch) -> Chat:
    session = ScriptedSession()
    settings = ChatSettings(target="/models/big.gguf", draft=None)
    chat = Chat(EngineThread(session.open), settings, saved)
    monkeypatch.setattr("localspec.cli.line_chat.missing", lambda *_: [])  # nothing to fetch
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert LineChat(chat).run(None, may_fetch=True) == 0
    return chat


def test_a_chat_that_is_not_saved_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    run("one\ntwo\n", SavedChat(tmp_path / "file", "c"), monkeypatch)
    told = capsys.readouterr()
    assert told.out == "Hello\nHello\n"
    assert told.err.count("no longer saved") == 1


def test_an_edit_ends_with_its_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = run("one\n/edit\n/new\ntwo\n", SavedChat(tmp_path, "c"), monkeypatch)
    assert [turn.text for turn in chat.conversation.path()] == ["two", "Hello"]
    assert "type the new question" in capsys.readouterr().err


def test_damage_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.jsonl").write_text("{}\n")
    run("", SavedChat.open("c", tmp_path), monkeypatch)
    assert "1 damaged line of" in capsys.readouterr().err
