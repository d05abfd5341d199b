"""The commands of the chat, on a scripted pair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.chat import Chat
from localspec.chat.commands import COMMANDS, code_blocks, find, run_command
from localspec.errors import InvalidOptionError
from tests.scripted_chat import RecordingFrontEnd, ScriptedSession, ask, wait


def test_every_command_runs_or_says_what_it_needs(
    made: Callable[..., Chat], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without argument, with a wrong one, in an empty chat and in one with an answer."""
    monkeypatch.chdir(tmp_path)
    for with_answer in (False, True):
        for argument in ("", "no such thing", "-1", "[/x]"):
            chat = made(ScriptedSession())
            for command in COMMANDS:
                if with_answer and not chat.conversation.path():
                    ask(chat, "hello")
                front = RecordingFrontEnd(chat)
                run_command(front, f"/{command.name} {argument}")
                wait(chat)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("/temp 0.3", "temperature", 0.3),
        ("/temp 0", "temperature", 0.0),
        ("/ndraft 4", "n_draft", 4),
        ("/drafter ngram", "drafter", "ngram"),
        ("/set top-k 5", "top_k", 5),
        ("/set seed 7", "seed", 7),
        ("/set max_tokens 9", "max_tokens", 9),
        ("/set stop END", "stop", ("END",)),
    ],
)
def test_options_change_in_the_middle(
    made: Callable[..., Chat], line: str, name: str, value: Any
) -> None:
    session = ScriptedSession()
    chat = made(session)
    run_command(RecordingFrontEnd(chat), line)
    ask(chat, "hello")
    assert session.asked[-1][1][name] == value


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/temp hot", "is a number"),
        ("/temp -1", "temperature"),
        ("/ndraft 2.5", "is a number"),
        ("/drafter nobody", "choose one of"),
        ("/set tempature 1", "did you mean temperature"),
        ("/spec sideways", "choose one of"),
        ("/exact maybe", "on or off"),
        ("/tmep 1", "/temp"),
        ("/theme pink", "dark, light"),
        ("/load nothing", "no saved chat"),
        ("/file nothing", "no file"),
        ("/continue", "no answer"),
        ("/copy", "no answer"),
        ("/edit", "no question"),
        ("/retry", "no question"),
        ("/export", "nothing to export"),
        ("/export ~no-such-person/a.md", "cannot be written"),
        (f"/set top_k {10**400}", "too large"),
    ],
)
def test_what_cannot_be_done_is_told(made: Callable[..., Chat], line: str, words: str) -> None:
    front = RecordingFrontEnd(made(ScriptedSession()))
    run_command(front, line)
    assert len(front.said) == 1
    assert words in front.said[0]
    assert front.chat.settings.answering == {}


def test_options_return_to_their_defaults(made: Callable[..., Chat]) -> None:
    chat = made(ScriptedSession(), answering={"n_draft": 4, "top_k": 3})
    run_command(RecordingFrontEnd(chat), "/ndraft auto")
    run_command(RecordingFrontEnd(chat), "/set top_k default")
    assert chat.settings.answering == {}


def test_a_command_is_found_by_its_beginning() -> None:
    assert find("ret").name == "retry"
    assert find("exp").name == "export"
    with pytest.raises(InvalidOptionError, match="did you mean"):
        find("e")


def test_exact_loads_again(made: Callable[..., Chat]) -> None:
    session = ScriptedSession()
    chat = made(session)
    run_command(RecordingFrontEnd(chat), "/exact on")
    wait(chat)
    assert session.request is not None
    assert session.request.options == {"exact": True}


def test_a_new_chat_keeps_the_system_prompt(made: Callable[..., Chat]) -> None:
    session = ScriptedSession()
    chat = made(session)
    run_command(RecordingFrontEnd(chat), "/system be brief")
    ask(chat, "hello")
    run_command(RecordingFrontEnd(chat), "/new")
    assert not chat.conversation.path()
    ask(chat, "anew")
    assert session.asked[-1][0][0] == {"role": "system", "content": "be brief"}


def test_code_blocks_are_found() -> None:
    text = "see\n```py\na = 1\n```\nand\n~~~\nb\n```\n~~~\n````md\n```\nc\n```\n````\n"
    assert code_blocks(text) == ["a = 1\n", "b\n```\n", "```\nc\n```\n"]


@pytest.mark.parametrize("name", ["a" * 300, "~no-such-person/a", "nul\0"])
def test_a_model_of_an_impossible_name_is_refused_by_the_load(
    made: Callable[..., Chat], name: str
) -> None:
    chat = made(ScriptedSession())
    run_command(RecordingFrontEnd(chat), f"/model {name}")
    wait(chat)
    assert chat.settings.target == name


def test_a_question_of_another_chat_is_not_edited(made: Callable[..., Chat]) -> None:
    chat = made(ScriptedSession())
    ask(chat, "hello")
    question = chat.conversation.path()[0]
    chat.start_over()
    with pytest.raises(InvalidOptionError, match="in another chat"):
        chat.edit(question.id, "hello again")
    assert len(chat.conversation) == 0
