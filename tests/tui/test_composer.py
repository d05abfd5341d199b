"""The message box: what its keys do, and that nothing written is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual import events

from localspec.chat.engine_protocol import OpenPair
from localspec.tui.turn_view import TurnView
from tests.scripted_chat import ScriptedSession, plain, script
from tests.tui.driving import ANSWER, Driven, run, shown


def test_both_keys_insert_a_line_and_enter_sends(tmp_path: Path) -> None:
    session = ScriptedSession([ANSWER])

    async def body(test: Driven) -> None:
        await test.pilot.press("a", "ctrl+j", "b", "shift+enter", "c")
        assert test.composer.text == "a\nb\nc"
        await test.pilot.press("enter")
        await test.idle()
        assert session.asked[0][0][0]["content"] == "a\nb\nc"
        assert test.composer.text == ""

    run(tmp_path, body, session)


def test_enter_does_not_overtake_what_was_typed(tmp_path: Path) -> None:
    """As when a terminal sends a whole line at once."""

    async def body(test: Driven) -> None:
        line = "a whole line, sent faster than it is drawn"
        for character in line:
            test.app.post_message(events.Key(character, character))
        test.app.post_message(events.Key("enter", "\r"))
        await test.until(lambda: bool(test.chat.conversation.path()))
        assert test.chat.conversation.path()[0].text == line

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_the_history_is_walked_with_up_and_down(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("first")
        await test.ask("second")
        await test.pilot.press("d", "r", "a", "f", "t", "up")
        assert test.composer.text == "second"
        await test.pilot.press("up")
        assert test.composer.text == "first"
        await test.pilot.press("up", "down", "down")
        assert test.composer.text == "draft"

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_a_big_paste_is_whole_and_counted(tmp_path: Path) -> None:
    text = "word \r\n" * 30_000

    async def body(test: Driven) -> None:
        test.composer.post_message(events.Paste(text))
        await test.until(lambda: len(test.composer.text) == 30_000 * 6)
        await test.sees("30,000")

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_leaving_an_edit_gives_back_what_was_being_written(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("first")
        test.composer.put("half a question")
        question = test.app.widgets.transcript.query(TurnView).first()
        question.focus()
        await test.pilot.press("e")
        await test.until(lambda: test.composer.editing is not None)
        assert test.composer.text == "first"
        await test.pilot.press("escape")
        assert test.composer.editing is None
        assert test.composer.text == "half a question"
        question.focus()
        await test.pilot.press("e")
        await test.until(lambda: test.composer.editing is not None)
        await test.pilot.press("enter")  # asked once more
        await test.until(lambda: test.composer.text == "half a question")
        await test.idle()

    run(tmp_path, body, ScriptedSession([ANSWER, ANSWER]))


def test_what_is_typed_on_a_message_goes_to_the_box(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("first")
        last = test.app.widgets.transcript.last_turn
        assert last is not None
        last.focus()
        await test.pilot.pause()
        await test.pilot.press("slash", "h", "e")
        await test.until(lambda: test.composer.text == "/he")
        assert test.app.focused is test.composer
        assert test.composer.editing is None

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_editing_asks_differently_on_a_branch(tmp_path: Path) -> None:
    session = ScriptedSession([ANSWER, script([plain(0, "other")])])

    async def body(test: Driven) -> None:
        await test.ask("Write code")
        test.composer.put("/edit")
        await test.pilot.press("enter")
        assert test.composer.text == "Write code"
        test.composer.load_text("Write prose")
        await test.pilot.press("enter")
        await test.until(lambda: len(session.asked) == 2)
        await test.idle()
        assert session.asked[1][0][0]["content"] == "Write prose"
        assert "‹ 2 of 2 ›" in shown(test.app)

    run(tmp_path, body, session)


def test_commands_are_suggested_and_completed(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.pilot.press("/", "t")
        await test.sees("Temperature; 0 is greedy")
        await test.pilot.press("tab")
        assert test.composer.text == "/temp "
        await test.pilot.press("0", "enter")
        await test.sees("temperature is 0.0")
        assert test.chat.settings.options.temperature == 0.0

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_what_can_be_stopped_is_said(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)

    async def body(test: Driven) -> None:
        footer = lambda: shown(test.app).splitlines()[-1]  # noqa: E731
        assert "Stop" not in footer()
        assert "Ask something" in shown(test.app)
        test.composer.put("Write code")
        await test.pilot.press("enter")
        await test.sees("Esc stops the answer")
        await test.until(lambda: "esc Stop" in footer())
        await test.pilot.press("escape")
        gate.release(20)
        await test.idle()
        await test.sees("Ask something")
        await test.until(lambda: "Stop" not in footer())

    run(tmp_path, body, ScriptedSession([ANSWER], gate=gate), size=(80, 24))


def test_a_question_that_waited_for_the_load_can_be_stopped_too(tmp_path: Path) -> None:
    """Loading goes over into answering, and both can be stopped."""
    loading, gate = threading.Event(), threading.Semaphore(0)

    class Slow(ScriptedSession):
        def open(self, request: OpenPair, reply: Callable[[Any], None]) -> ScriptedSession:
            assert loading.wait(10)
            return super().open(request, reply)

    async def body(test: Driven) -> None:
        test.composer.put("Write code")
        await test.pilot.press("enter")
        await test.sees("your question waits")
        assert "Esc stops the answer" not in shown(test.app)
        loading.set()
        await test.sees("Esc stops the answer")
        gate.release(20)
        await test.idle()

    run(tmp_path, body, Slow([ANSWER], gate=gate), size=(80, 24), wait=False)


def test_a_second_escape_does_not_drop_an_edit(tmp_path: Path) -> None:
    gate = threading.Semaphore(20)

    async def body(test: Driven) -> None:
        await test.ask("first")
        while gate.acquire(blocking=False):
            pass
        test.composer.put("second")
        await test.pilot.press("enter")
        await test.until(lambda: test.chat.live is not None)
        test.composer.put("an edit", test.chat.conversation.path()[0].id)
        assert test.chat.live is not None
        test.chat.live.stopping = True  # as the first one leaves it, until the round is over
        await test.pilot.press("escape")
        assert test.composer.text == "an edit"
        gate.release(20)
        await test.idle()

    run(tmp_path, body, ScriptedSession([ANSWER, ANSWER], gate=gate))
