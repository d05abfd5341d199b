"""Answers on the screen: thinking, notes, branches, continuations, and what files hold."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

from localspec.chat.commands import run_command
from localspec.chat.conversation import Turn
from localspec.chat.saved import SavedChat
from localspec.control.economics import COPIES_ALONE
from localspec.decoding.events import Event
from localspec.tui.markdown_text import rendered
from localspec.tui.turn_view import TurnView
from tests.scripted_chat import ScriptedSession, plain, round_of, script
from tests.tui.driving import Driven, run, shown


def test_a_continued_answer_grows_in_its_last_line(tmp_path: Path) -> None:
    gate = threading.Semaphore(1)

    async def body(test: Driven) -> None:
        await test.ask("go")
        test.composer.put("/continue")
        await test.pilot.press("enter")
        gate.release()
        await test.sees("so far and")
        assert test.app.widgets.transcript.live_view is not None
        assert "first line\n" in "\n".join(row.rstrip() for row in shown(test.app).split("\n"))
        gate.release(5)
        await test.idle()

    begun = script([plain(0, "first line\nso far")], reason="length")
    rest = script([plain(0, " and"), plain(1, " on")])
    run(tmp_path, body, ScriptedSession([begun, rest], gate=gate))


def test_what_holds_for_every_answer_is_said_under_the_first(tmp_path: Path) -> None:
    def answer(ratio: str) -> list[Event]:
        note = f"{COPIES_ALONE}: a round would run at {ratio} times plain speed"
        return script([plain(0, "Hello")], notes=(note, "drafting has another limit here"))

    async def body(test: Driven) -> None:
        await test.ask("one")
        await test.ask("two")
        views = [view for view in test.app.query(TurnView) if view.turn.role == "assistant"]
        assert [len(view.notes) for view in views] == [2, 0]
        assert [len(view.query(".notes")) for view in views] == [1, 0]
        assert "at 0.91 times" in views[0].notes[0]
        assert all(len(view.turn.notes) == 2 for view in views), "all are kept"

    run(tmp_path, body, ScriptedSession([answer("0.91"), answer("0.48")]))


def test_walking_the_branches_of_a_question_stays_at_the_question(tmp_path: Path) -> None:
    long = script([plain(0, "word\n\n" * 60)])

    async def body(test: Driven) -> None:
        await test.ask("Write code")
        test.composer.put("/edit")
        await test.pilot.press("enter")
        test.composer.load_text("Write prose")
        await test.pilot.press("enter")
        await test.idle()
        await test.pilot.press("shift+tab")
        await test.pilot.press("up", "up", "up")
        for words, place in (("Write code", "‹ 1 of 2 ›"), ("Write prose", "‹ 2 of 2 ›")):
            await test.pilot.press("left")
            await test.idle()
            await test.sees(place)
            focused = test.app.focused
            assert isinstance(focused, TurnView)
            assert focused.turn.text == words

    run(tmp_path, body, ScriptedSession([long]))


def test_thinking_is_folded_and_opens(tmp_path: Path) -> None:
    rounds = [plain(0, "<think>\nhm, well\n"), plain(1, "</think>\n\nYes")]

    async def body(test: Driven) -> None:
        await test.ask("well?")
        assert "▸ thought for" in shown(test.app)
        assert "hm, well" not in shown(test.app)
        await test.pilot.press("ctrl+o")
        await test.sees("hm, well")

    run(tmp_path, body, ScriptedSession([script(rounds)]), settings={"view": "off"})


def test_thinking_is_folded_while_it_grows_among_draft_tokens(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)
    rounds = [
        round_of(0, ["<think>", "\nlet me"], " see", rejected=" wrong"),
        plain(1, ", well\n"),
        round_of(2, ["</think>"], "\n\nYes"),
        plain(3, " <b>"),
    ]

    async def body(test: Driven) -> None:
        test.composer.put("well?")
        await test.pilot.press("enter")
        gate.release(2)
        await test.sees("▸ thinking for")
        await test.painted(2)
        assert "let me" not in shown(test.app)
        await test.pilot.press("ctrl+o")
        await test.sees("let me see, well")
        await test.pilot.press("ctrl+o")
        gate.release(1)
        await test.sees("Yes")
        assert "▸ thought for" in shown(test.app)
        assert "let me" not in shown(test.app)
        gate.release(1)
        await test.idle()
        await test.sees("Yes <b>")

    run(tmp_path, body, ScriptedSession([script(rounds)], gate=gate))


def test_an_answer_that_begins_like_a_mark_is_whole(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)
    rounds = [plain(0, "<th"), plain(1, "ead> is"), plain(2, " a tag")]

    async def body(test: Driven) -> None:
        test.composer.put("html?")
        await test.pilot.press("enter")
        gate.release(1)
        await test.painted(1)
        await test.pilot.press("ctrl+t", "ctrl+t", "ctrl+t")  # a view that begins in mid-mark
        gate.release(1)
        await test.sees("<thead> is")
        gate.release(1)
        await test.idle()

    run(tmp_path, body, ScriptedSession([script(rounds)], gate=gate))


def test_the_figures_are_of_the_branch_that_is_read(tmp_path: Path) -> None:
    long, short = script([plain(i, "word ") for i in range(30)]), script([plain(0, "No")])

    async def body(test: Driven) -> None:
        await test.ask("one")
        await test.pilot.press("ctrl+r")
        await test.idle()
        await test.sees("tok/s")
        await test.pilot.press("tab", "left")
        await test.sees("ctx 40/4,096")
        assert "tok/s ·" not in str(test.app.widgets.figures._shown)

    run(tmp_path, body, ScriptedSession([long, short]))


@pytest.mark.parametrize("view", ["off", "inline", "inspector"])
def test_another_view_shows_at_once_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    gate = threading.Semaphore(0)

    async def body(test: Driven) -> None:
        test.composer.put("well?")
        await test.pilot.press("enter")
        gate.release()
        await test.sees("one two")
        monkeypatch.setattr(test.app.painter, "_painted", lambda began: None)
        await test.pilot.pause()
        test.app.painter._next_at = math.inf  # a slow machine rests for long after a paint
        before = test.app.widgets.transcript.live_view
        run_command(test.app.front_end, f"/spec {view}")
        await test.until(lambda: test.app.widgets.transcript.live_view not in (None, before))
        await test.until(
            lambda: any("one two" in line[:50] for line in shown(test.app).splitlines())
        )
        gate.release(5)
        await test.idle()

    rounds = [round_of(0, ["one"], " two"), plain(1, " three")]
    other = "inline" if view == "off" else "off"
    session = ScriptedSession([script(rounds)], gate=gate)
    run(tmp_path, body, session, settings={"view": other})


# Saved chats, damaged or foreign.


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


def test_what_has_no_rounds_is_shown_among_draft_tokens_too(tmp_path: Path) -> None:
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


def test_thinking_is_folded_among_draft_tokens_of_a_done_answer(tmp_path: Path) -> None:
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


def test_a_poem_keeps_its_lines() -> None:
    drawn = rendered("Nodes in a list,\nlinked by pointers\n\n- one\n  two\n", 60, "dark").plain
    lines = [line.rstrip() for line in drawn.split("\n")]
    assert lines[:2] == ["Nodes in a list,", "linked by pointers"]
    assert [line.strip(" •") for line in lines[3:]] == ["one", "two"]
