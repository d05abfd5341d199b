"""Windows, downloads, themes and widths, on a scripted pair."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from localspec.chat.commands import THEMES, run_command
from localspec.chat.conversation import Turn
from localspec.chat.saved import SavedChat
from localspec.tui.pickers import ChatPicker, ConfirmScreen, ModelPicker
from tests.scripted_chat import ScriptedSession
from tests.tui.driving import ANSWER, Driven, driven, run, shown


def test_a_draft_is_asked_for_in_a_window(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.ask("/draft")
        await test.until(lambda: isinstance(test.app.screen, ModelPicker))
        await test.sees("no draft model; draft tokens are copies")
        await test.pilot.press("n", "o", "n", "e", "enter")
        await test.until(lambda: test.chat.settings.draft is None)
        await test.idle()

    run(tmp_path, body, ScriptedSession([ANSWER]), settings={"draft": "x.gguf"})


def test_a_saved_chat_is_opened_in_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA", str(tmp_path))
    old = SavedChat(tmp_path / "chats", "old")
    old.add(Turn("q", None, "user", "an [/old] question"))
    old.close()

    async def body(test: Driven) -> None:
        await test.ask("/load")
        await test.until(lambda: isinstance(test.app.screen, ChatPicker))
        await test.sees("an [/old] question")
        await test.pilot.press("enter")
        await test.until(lambda: test.chat.saved.id == "old")
        await test.sees("an [/old] question")

    run(tmp_path, body, ScriptedSession([ANSWER]))


def test_a_download_is_asked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    async def main() -> None:
        given = {"settings": {"target": "default", "draft": "auto"}, "wait": False}
        async with driven(ScriptedSession([ANSWER]), tmp_path, **given) as test:
            test.app._may_fetch = False
            test.app._begin()
            await test.until(lambda: isinstance(test.app.screen, ConfirmScreen))
            assert "1.12 GB" in shown(test.app)

    asyncio.run(main())


@pytest.mark.parametrize("view", ["off", "inline", "inspector"])
def test_every_theme_and_width_works_and_no_size_ends_the_app(tmp_path: Path, view: str) -> None:
    async def body(test: Driven) -> None:
        await test.ask("Write code")
        for theme in THEMES:
            run_command(test.app.front_end, f"/theme {theme}")
            await test.sees("a = 1")
        for width in (30, 80, 200):
            await test.pilot.resize_terminal(width, 24)
            await test.sees("code")
            await test.until(lambda: all(len(line) <= test.app.size.width
                                         for line in shown(test.app).splitlines()))  # fmt: skip
        for size in ((1, 1), (10, 3), (4, 40), (5, 2), (200, 1), (120, 40)):
            await test.pilot.resize_terminal(*size)
        await test.sees("code")

    run(tmp_path, body, ScriptedSession([ANSWER]), settings={"view": view})


def test_the_editor_writes_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(test: Driven) -> None:
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.delenv("EDITOR", raising=False)
        await test.pilot.press("ctrl+g")
        await test.sees("set $EDITOR")
        monkeypatch.setenv("EDITOR", "true")
        test.composer.put("half a message")
        await test.pilot.press("ctrl+g")
        await test.sees("the message is as it was")  # no editor can run in a test's terminal
        assert test.composer.text == "half a message"

    run(tmp_path, body, ScriptedSession([ANSWER]))
