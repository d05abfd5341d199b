"""BB. The terminal.

- No colours, a dumb terminal, a pipe: tests/tui/test_screens.py, test_no_color;
  tests/real/test_chat.py, test_line_by_line_where_the_terminal_is_dumb; below.
- A paste of many lines: below; 30,000 lines with CRLF, counted in tokens before they are sent:
  tests/tui/test_composer.py, test_a_big_paste_is_whole_and_counted.
- Megabytes in the log: below, without a clock; the long answer is painted in pieces that are
  frozen (localspec.tui.live_view).
- Markdown parsed again on every tick: below: the part that is parsed again does not grow.
- Wide characters in the input: below.
- Right-to-left text is kept as it was written: below. Reordering is the terminal's work and is not
  done here; overrides are made visible (section CC).
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual import events

from localspec.session.marks import Mark
from localspec.tui.markdown_text import Pieces
from localspec.tui.turn_view import marked_content
from tests.cases.proof import shown_by
from tests.scripted_chat import ScriptedSession, plain, round_of, script
from tests.tui.driving import Driven, run, shown

RTL = "שלום 123 `code(1)` مرحبا 45 end"


def test_without_colours_rejected_tokens_are_in_brackets() -> None:
    marks = [Mark("yes", "model"), Mark(" no", "rejected")]
    assert marked_content(marks, plain=True).plain == "yes[- no-]"
    shown_by(
        "tui.test_screens.test_no_color",
        "real.test_chat.test_line_by_line_where_the_terminal_is_dumb",
        "tiny.test_command.test_text_on_stdout_the_gain_in_one_line_on_stderr",
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_paste_of_three_lines_is_one_message(tmp_path: Path, end: str) -> None:
    async def body(test: Driven) -> None:
        test.composer.post_message(events.Paste(end.join(["one", "two", "three"])))
        await test.until(lambda: "three" in test.composer.text)
        await test.pilot.press("enter")
        await test.idle()
        asked = [turn.text for turn in test.chat.conversation.path() if turn.role == "user"]
        assert asked == ["one\ntwo\nthree"]

    run(tmp_path, body, ScriptedSession())
    shown_by("tui.test_composer.test_a_big_paste_is_whole_and_counted")


def test_a_message_of_400_kilobytes_is_kept_whole_and_shown_in_part(tmp_path: Path) -> None:
    text = "lines of text\n" * 30_000

    async def body(test: Driven) -> None:
        await test.ask(text)
        question = next(turn for turn in test.chat.conversation.path() if turn.role == "user")
        assert question.text.strip() == text.strip()
        await test.sees("more characters")

    session = ScriptedSession()
    session.n_ctx = 10_000_000
    run(tmp_path, body, session)


@pytest.mark.parametrize("view", ["inline", "off"])
def test_a_long_answer_keeps_the_keys_alive(tmp_path: Path, view: str) -> None:
    """While 300 lines are being written, what is typed arrives."""
    gate = threading.Semaphore(0)
    rounds = [round_of(i, [f"- *line* {i}"], "\n") for i in range(300)]

    async def body(test: Driven) -> None:
        test.composer.put("go")
        await test.pilot.press("enter")
        gate.release(290)
        await test.sees("289")
        await test.pilot.press("h", "e", "y")
        assert test.composer.text == "hey"
        gate.release(100)
        await test.idle()
        assert test.chat.conversation.path()[-1].text.count("\n") == 300

    run(tmp_path, body, ScriptedSession([script(rounds)], gate=gate), settings={"view": view})


def test_the_markdown_that_is_parsed_again_does_not_grow() -> None:
    """Pieces that are done are never touched again, however long the answer is."""
    pieces, text, longest = Pieces(), "", 0
    done: list[object] = []
    for i in range(2_000):
        text += f"A paragraph with *some* words, {i}.\n\n"
        longest = max(longest, len(pieces.push(text).text))
        assert pieces.done[: len(done)] == done
        done = list(pieces.done)
    assert len(done) > 50
    assert longest < 3_000


def test_the_cursor_stands_behind_a_wide_character(tmp_path: Path) -> None:
    """Cells, not characters: typed, walked and deleted in Japanese."""

    async def body(test: Driven) -> None:
        await test.pilot.press("日", "本", "語")
        left = test.composer.cursor_screen_offset.x
        await test.pilot.press("left")
        assert left - test.composer.cursor_screen_offset.x == 2
        await test.pilot.press("backspace")
        assert test.composer.text == "日語"
        await test.pilot.press("x")
        assert test.composer.text == "日x語"

    run(tmp_path, body, ScriptedSession())


def test_lines_are_wrapped_by_cells(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("漢" * 100)
        assert shown(test.app).count("漢") == 100

    run(tmp_path, body, ScriptedSession(), size=(60, 30))


def test_right_to_left_text_is_stored_and_copied_in_logical_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []

    async def body(test: Driven) -> None:
        monkeypatch.setattr(test.app.front_end, "copy", lambda text, what: copied.append(text))
        await test.ask(RTL)
        assert [turn.text for turn in test.chat.conversation.path()] == [RTL, RTL]
        test.composer.put("/copy")
        await test.pilot.press("enter")
        await test.until(lambda: copied)
        assert copied == [RTL]

    run(tmp_path, body, ScriptedSession([script([plain(0, RTL)])]))
