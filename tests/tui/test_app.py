"""Every key and what a person sees, on a scripted pair."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from localspec.chat.commands import COMMANDS
from localspec.chat.conversation import Turn
from localspec.chat.saved import SavedChat
from localspec.errors import ModelNotFoundError
from localspec.session.marks import Mark
from localspec.tui import live_view
from localspec.tui.help import HelpScreen
from localspec.tui.inspector import Inspector, Lane
from localspec.tui.transcript import _N_SHOWN
from localspec.tui.turn_view import TurnView
from tests.scripted_chat import ScriptedSession, plain, round_of, script
from tests.tui.driving import ANSWER, Driven, run, shown


def test_a_question_is_answered(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("Write code")
        text = shown(test.app)
        assert "Write code" in text
        assert "a = 1" in text
        assert "accepted 4 of 5" in text
        assert "×" in test.line("#figures")
        assert "big-Q4_K_M + small-Q4_0 · CPU, 2 threads" in text

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_draft_tokens_are_seen_live_and_the_rejected_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Semaphore(0)

    async def body(test: Driven) -> None:
        monkeypatch.setattr(live_view, "_FLASH_S", 1e9)
        test.composer.put("go")
        await test.pilot.press("enter")
        gate.release()
        await test.sees(" yes")
        assert "no" in shown(test.app)  # struck through, for a while
        monkeypatch.setattr(live_view, "_FLASH_S", 0.0)
        await test.until(
            lambda: "no" not in shown(test.app).partition("yes")[0].rpartition("ok")[2]
        )
        gate.release()
        await test.idle()

    rounds = [round_of(0, ["ok"], " yes", rejected=" no"), plain(1, " end")]
    run(tmp_path, body, ScriptedSession([script(rounds)], gate=gate))


def test_a_rejected_token_is_seen_however_late_it_is_painted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(live_view.time, "monotonic", lambda: now)
    late: live_view._Tail = [(None, Mark(" no", "rejected")), (None, Mark(" yes", "target"))]
    painted = live_view._unfaded(late)
    assert [mark.text for _, mark in painted] == [" no", " yes"]
    now += 1.0
    assert [mark.text for _, mark in live_view._unfaded(painted)] == [" no", " yes"]
    now += 1.0
    assert [mark.text for _, mark in live_view._unfaded(painted)] == [" yes"]


def test_escape_stops_and_keeps_the_text(tmp_path: Path) -> None:
    gate = threading.Semaphore(1)

    async def body(test: Driven) -> None:
        test.composer.put("go")
        await test.pilot.press("enter")
        await test.sees("so far")
        await test.pilot.press("escape")
        await test.idle()
        assert "so far" in shown(test.app)
        assert "stopped; /continue goes on" in shown(test.app)
        gate.release(5)
        await test.ask("/continue")
        assert "so far and on" in shown(test.app)

    scripts = [script([plain(0, "so far"), plain(1, " lost")]), script([plain(0, " and on")])]
    run(tmp_path, body, ScriptedSession(scripts, gate=gate))


def test_the_view_has_three_depths(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("Write code")
        await test.pilot.press("ctrl+t")
        assert test.chat.settings.view == "inspector"
        await test.sees("the controller chose a plain step")
        assert "bonus" not in shown(test.app).partition("token 1 of 1")[2].partition("✓")[0]
        assert test.app.query_one(Inspector).display
        await test.pilot.press("f2")
        await test.until(lambda: not test.app.query_one(Inspector).display)
        assert test.chat.settings.view == "off"
        await test.pilot.press("f2")
        assert test.chat.settings.view == "inline"

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_rounds_are_walked_with_the_arrows(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("Write code")
        await test.sees("round 4, 10 tokens before it")
        lane = test.app.query_one(Lane)
        lane.focus()
        await test.pilot.press("home")
        await test.sees("round 1, 10 tokens before it")
        await test.pilot.press("down")
        await test.sees("token 2 of 3: b  (id")
        await test.sees("rejected")
        await test.sees("chance of acceptance min(1, p/q) 6%")
        await test.pilot.press("right")
        await test.sees("by the target: correction")
        await test.pilot.press("left", "left")
        await test.sees("token 1 of 3")
        await test.pilot.press("end")
        await test.sees("round 4")
        assert lane.follows

    view = {"view": "inspector"}
    run(tmp_path, body, ScriptedSession([ANSWER]), size=(200, 50), settings=view)


def test_keys_on_a_message(tmp_path: Path) -> None:
    session = ScriptedSession([ANSWER, script([plain(0, "other")])])
    copied: list[str] = []

    async def body(test: Driven) -> None:
        test.app.copy_to_clipboard = copied.append  # type: ignore[method-assign]
        await test.ask("Write code")
        answer = [view for view in test.app.query(TurnView) if view.turn.role == "assistant"][-1]
        answer.focus()
        await test.pilot.press("c", "b")
        assert copied == ["Here is code:\n\n```py\na = 1\n```\n", "a = 1\n"]
        await test.pilot.press("t")
        await test.until(lambda: answer.marked)
        assert "```py" in shown(test.app)
        await test.pilot.press("t", "r")
        await test.until(lambda: len(session.asked) == 2)
        await test.idle()
        assert "‹ 2 of 2 ›" in shown(test.app)
        view = [view for view in test.app.query(TurnView) if view.turn.role == "assistant"][-1]
        view.focus()
        await test.pilot.press("left")
        await test.sees("‹ 1 of 2 ›")
        question = test.app.query(TurnView).first()
        question.focus()
        await test.pilot.press("e")
        assert test.composer.text == "Write code"
        assert test.composer.editing == question.turn.id
        await test.pilot.press("escape")
        assert test.composer.editing is None

    run(tmp_path, body, session)


def test_an_answer_without_drafts_says_how_to_have_some(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("hm")
        assert "drafting did not pay in this answer; /ndraft 4" in test.line("#status")

    run(tmp_path, body, ScriptedSession([script([plain(0, "a"), plain(1, "b")])]))


def test_ctrl_c_twice_quits_and_once_does_not(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.pilot.press("ctrl+c")
        await test.sees("Ctrl+C again quits")
        assert test.app.is_running
        await test.pilot.press("ctrl+c")
        await test.until(lambda: test.app.return_value == 0)

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_quitting_in_the_middle_keeps_the_answer(tmp_path: Path) -> None:
    gate = threading.Semaphore(1)

    async def body(test: Driven) -> None:
        test.composer.put("go")
        await test.pilot.press("enter")
        await test.sees("so far")
        await test.pilot.press("ctrl+q")

    scripts = [script([plain(0, "so far"), plain(1, " lost")])]
    run(tmp_path, body, ScriptedSession(scripts, gate=gate))
    read = SavedChat.open("chat", tmp_path).conversation
    assert read.path()[-1].text == "so far"


def test_help_lists_every_command(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.pilot.press("f1")
        await test.until(lambda: isinstance(test.app.screen, HelpScreen))
        text = shown(test.app)
        for command in COMMANDS:
            assert f"/{command.name}" in text
        await test.pilot.press("escape")
        await test.until(lambda: not isinstance(test.app.screen, HelpScreen))

    run(tmp_path, body, ScriptedSession([ANSWER]), size=(120, 80))


def test_the_palette_has_the_commands(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        titles = [command.title for command in test.app.get_system_commands(test.app.screen)]
        assert {f"/{command.name}" for command in COMMANDS} <= set(titles)
        assert "/theme light" in titles
        await test.pilot.press("ctrl+p")
        await test.sees("Search for commands")

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_a_load_that_fails_says_why(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.sees("no such [/model] at all")
        await test.pilot.press("h", "i", "enter")
        await test.sees("no model is loaded")
        assert test.composer.text == "hi"  # nothing is lost

    session = ScriptedSession(failure=ModelNotFoundError("no such [/model] at all"))
    run(tmp_path, body, session)


@pytest.mark.parametrize(
    "text",
    ["[/path] [bold a[0] [#888]x[/#999] \\[", "\x1b]52;c;aGk=\x07\x1b[2J\r\x9b31m\u202eabc", "[/]"],
)
def test_model_text_is_literal(tmp_path: Path, text: str) -> None:
    async def body(test: Driven) -> None:
        for view in ("inline", "off", "inspector"):
            test.composer.put(f"/spec {view}")
            await test.pilot.press("enter")
            await test.ask(f"say {text}")
            rendered = shown(test.app)
            assert "\x1b" not in rendered
            assert "\u202e" not in rendered
        assert test.chat.conversation.path()[-1].text == text
        assert text[:6] in shown(test.app) or text.startswith("\x1b")

    run(tmp_path, body, ScriptedSession([script([plain(0, text)])], name="[/evil]"))


def test_why_nothing_is_drafted_is_said(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.sees("a draft model cannot pay here")
        test.composer.put("/drafter none")
        await test.pilot.press("enter")
        await test.sees("drafting is off (/drafter auto turns it on)")

    why_not = "a draft model cannot pay here: on this CPU a batch of 4 costs 2.9 steps"
    run(tmp_path, body, ScriptedSession([ANSWER], why_no_draft_model=why_not))


def test_tab_goes_from_part_to_part(tmp_path: Path) -> None:
    """Not through every message of a long chat."""

    async def body(test: Driven) -> None:
        for _ in range(3):
            await test.ask("again")
        views = list(test.app.query(TurnView))
        await test.pilot.press("tab")
        assert views[-1].has_focus
        await test.pilot.press("up", "up", "tab")
        assert test.composer.has_focus
        await test.pilot.press("ctrl+t", "tab", "tab")
        assert test.app.widgets.inspector.lane.has_focus
        await test.pilot.press("tab")
        assert test.composer.has_focus
        await test.pilot.press("shift+tab")
        assert test.app.widgets.inspector.lane.has_focus
        await test.pilot.press("shift+tab", "shift+tab")
        assert test.composer.has_focus

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_the_reader_who_scrolls_up_is_left_alone(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)
    rounds = [plain(i, f"line {i}\n\n") for i in range(80)]

    async def body(test: Driven) -> None:
        test.composer.put("go")
        await test.pilot.press("enter")
        gate.release(40)
        await test.sees("line 39")
        await test.pilot.press("pageup")
        await test.until(lambda: not test.app.widgets.transcript.is_followed)
        at = test.app.widgets.transcript.scroll_y
        gate.release(20)
        await test.painted(60)
        assert test.app.widgets.transcript.scroll_y == at
        await test.pilot.press("ctrl+end")
        await test.sees("line 59")
        gate.release(20)
        await test.idle()
        await test.sees("line 79")

    run(tmp_path, body, ScriptedSession([script(rounds)], gate=gate))


def test_a_long_chat_shows_its_end_and_more_on_demand(tmp_path: Path) -> None:
    saved = SavedChat(tmp_path, "long")
    for i in range(100):
        role = "assistant" if i % 2 else "user"
        saved.add(Turn(f"t{i}", f"t{i - 1}" if i else None, role, f"message {i}", reason="eos"))

    async def body(test: Driven) -> None:
        await test.sees("message 99")
        assert len(test.app.query(TurnView)) == _N_SHOWN
        test.app.widgets.transcript.scroll_home(animate=False)
        await test.pilot.pause()
        await test.sees(f"{100 - _N_SHOWN} earlier messages")
        await test.pilot.press("pageup")
        await test.until(lambda: len(test.app.query(TurnView)) == 2 * _N_SHOWN)

    run(tmp_path, body, ScriptedSession([ANSWER]), saved=saved)
