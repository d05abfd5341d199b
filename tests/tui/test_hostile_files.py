"""Chats of damaged or foreign files on the screen: everything is shown, nothing ends the app."""

from __future__ import annotations

from pathlib import Path

from localspec.chat.commands import run_command
from localspec.chat.conversation import Turn
from localspec.chat.saved import SavedChat
from tests.scripted_chat import ScriptedSession, plain, round_of
from tests.tui.driving import Driven, run, shown


def test_an_edit_ends_with_the_chat_that_it_belongs_to(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("hello")
        test.composer.load_text("begun")
        run_command(test.app.front_end, "/edit")
        assert test.composer.editing is not None
        run_command(test.app.front_end, "/new")  # as from the palette
        assert test.composer.editing is None
        assert test.composer.text == "begun"
        await test.pilot.press("enter")
        await test.idle()
        assert [turn.text for turn in test.chat.conversation.path()] == ["begun", "Hello"]

    run(tmp_path, body, ScriptedSession())


def test_what_has_no_rounds_is_shown_among_the_guesses_too(tmp_path: Path) -> None:
    """A continuation that a kill cut short has text, and no rounds."""
    saved = SavedChat(tmp_path, "chat")
    saved.add(Turn("q", None, "user", "hello"))
    rounds = (round_of(0, ["one"], " two", rejected="x"),)
    answer = Turn("a", "q", "assistant", "one two", (5, 6), "length", rounds=rounds)
    saved.add(answer)
    saved.grow(answer, " three", [7])
    saved.close()

    async def body(test: Driven) -> None:
        await test.sees("one two three")

    read = SavedChat.open("chat", tmp_path)
    run(tmp_path, body, ScriptedSession(), saved=read, settings={"view": "inspector"})


def test_thinking_is_folded_among_the_guesses_of_a_done_answer(tmp_path: Path) -> None:
    rounds = (
        round_of(0, ["<think>", "hm"], " well", rejected="so"),
        plain(1, "</think>\n\nYes"),
        round_of(2, [" it"], " is", rejected="no"),
    )
    text = "<think>hm well</think>\n\nYes it is"
    saved = SavedChat(tmp_path, "chat")
    saved.add(Turn("q", None, "user", "hello"))
    saved.add(Turn("a", "q", "assistant", text, (5, 6), "eos", rounds=rounds, thinking_s=1.0))

    async def body(test: Driven) -> None:
        await test.sees("Yes it")
        transcript = [line[:60] for line in shown(test.app).splitlines()]
        assert any("▸ thought for 1 s" in line for line in transcript)
        assert not any("think>" in line for line in transcript)
        await test.pilot.press("ctrl+o")
        await test.sees("hm well")

    run(tmp_path, body, ScriptedSession(), saved=saved, settings={"view": "inspector"})


def test_damage_and_an_answer_to_nothing(tmp_path: Path) -> None:
    saved = SavedChat(tmp_path, "chat")
    timings = {"predicted_n": 4, "draft_n_rejected": 2}
    saved.add(Turn("a", None, "assistant", "out of the blue", (5,), "eos", timings))
    saved.close()
    with saved.path.open("a") as file:
        file.write("{}\n")

    async def body(test: Driven) -> None:
        await test.sees("out of the blue")
        await test.sees("1 damaged line of")
        last = test.app.widgets.transcript.last_turn
        assert last is not None
        last.focus()
        await test.pilot.press("r")
        await test.sees("there is no question yet")

    run(tmp_path, body, ScriptedSession(), saved=SavedChat.open("chat", tmp_path))
