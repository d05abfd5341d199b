"""CC. Markup and control characters in what a model writes.

- Markup: question, answer, title, status, toast and error are literal: below and
  tests/tui/test_app.py, test_model_text_is_literal, test_a_load_that_fails_says_why.
- Escape codes: made visible on every terminal, raw in the API, in a pipe and in the saved chat.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from localspec.cli.show import StyledPrinter, TextPrinter
from localspec.tui.markdown_text import rendered
from localspec.visible import visible
from tests.cases.proof import shown_by
from tests.scripted_chat import ScriptedSession, plain, round_of, script
from tests.tui.driving import Driven, run, shown

MARKUP = ["[/]", "[bold", "a[0] [#888]x[/#999]", "[@click=app.quit]x[/]"]
CODES = {
    "clipboard": "\x1b]52;c;aGk=\x07",
    "clear": "\x1b[2J",
    "return": "\r",
    "bell": "\x07",
    "backspace": "\x08",
    "c1": "\x9b31m\x9d0;title\x9c",
    "bidi": "\u202eabc\u2066d\u2069",
}


@pytest.mark.parametrize("text", MARKUP)
@pytest.mark.parametrize("view", ["inline", "off"])
def test_markup_is_text_in_question_answer_title_and_notes(
    tmp_path: Path, text: str, view: str
) -> None:
    async def body(test: Driven) -> None:
        await test.ask(text)
        assert shown(test.app).count(text) >= 1
        assert [turn.text for turn in test.chat.conversation.path()] == [text, text]
        test.app.front_end.say(text)
        await test.sees(text)

    answer = script([round_of(0, [text[:1]], text[1:], rejected=text, text=text)], notes=(text,))
    session = ScriptedSession([answer], name=text.replace("/", "|"))
    run(tmp_path, body, session, settings={"view": view})
    shown_by(
        "tui.test_app.test_model_text_is_literal",
        "tui.test_app.test_a_load_that_fails_says_why",
        "unit.test_conversation.test_an_export_is_literal_text",
        "tiny.test_results.test_hostile_text_stays_text_in_html",
    )


@pytest.mark.parametrize("code", sorted(CODES))
def test_no_escape_code_reaches_a_terminal(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the command, nor by its marks; and the text itself stays what it was."""
    text = f"a{CODES[code]}b"
    out = io.StringIO()
    TextPrinter(out, terminal=True).show(plain(0, text))
    assert _is_harmless(out.getvalue())
    styled = io.StringIO()
    monkeypatch.setenv("TERM", "dumb")
    StyledPrinter(styled).show(round_of(0, [text], "x", rejected=text))
    assert _is_harmless(styled.getvalue())
    assert _is_harmless(visible(text))
    assert visible("a\n\tb é 語 🙂") == "a\n\tb é 語 🙂"


@pytest.mark.parametrize("view", ["inline", "off", "inspector"])
def test_no_escape_code_reaches_the_screen_of_the_chat(tmp_path: Path, view: str) -> None:
    text = f"a{''.join(CODES.values())}b"

    async def body(test: Driven) -> None:
        await test.ask("go")
        assert _is_harmless(shown(test.app))
        assert test.chat.conversation.path()[-1].text == text

    run(tmp_path, body, ScriptedSession([script([plain(0, text)])]), settings={"view": view})


def test_links_are_shown_and_cannot_be_opened() -> None:
    """A link of the model is words: no hyperlink, no action, the address is read beside it."""
    for look in ("dark", "light", "ansi"):
        drawn = rendered("see [here](https://example.org/x) now <b>", 80, look)
        assert drawn.plain.strip() == "see here (https://example.org/x) now <b>"
        styles = [str(span.style) for span in drawn.spans]
        assert not any("link=" in style or "link http" in style or "@" in style for style in styles)


def _is_harmless(text: str) -> bool:
    bad = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))} - {"\n", "\t"}
    bad |= {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
    return not bad & set(text)
