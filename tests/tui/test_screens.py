"""The main screens, cell by cell (see snapshot.py)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.engine_protocol import Downloading, OpenPair
from localspec.errors import ModelNotFoundError
from tests.scripted_chat import ScriptedSession, plain, round_of, script
from tests.tui.driving import Driven, driven
from tests.tui.snapshot import assert_snapshot

ANSWER = script(
    [
        round_of(0, ["A", " list"], " is"),
        round_of(1, [" sorted"], " by", rejected=" with", discarded=[" the"]),
        round_of(2, [" `sorted", "(xs)`"], ":\n\n", source="ngram"),
        plain(3, "```python\n"),
        round_of(4, ["xs", " =", " sorted"], "(xs)\n"),
        plain(5, "```\n"),
    ]
)
WIDE, USUAL, NARROW = (120, 40), (80, 24), (30, 24)


class _Slow(ScriptedSession):
    """Downloads until the test has seen it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()

    def open(self, request: OpenPair, reply: Callable[[Any], None]) -> ScriptedSession:
        reply(Downloading("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", 419_000_000, 1_117_320_768))
        assert self.seen.wait(10)
        return super().open(request, reply)


def _screen(name: str, folder: Path, *, size: tuple[int, int], view: str, **given: Any) -> None:
    async def main() -> None:
        session = ScriptedSession([ANSWER])
        settings = {"view": view}
        async with driven(
            session, folder, size=size, settings=settings, clock=lambda: 0.0, **given
        ) as test:
            await test.ask("How do I sort a list?")
            await _settled(test)
            assert_snapshot(test.app, name)

    asyncio.run(main())


async def _settled(test: Driven) -> None:
    await test.pilot.pause()
    await asyncio.sleep(0.3)  # Markdown and sparklines take a few turns of the loop
    await test.pilot.pause()


@pytest.mark.parametrize(
    ("name", "size", "view", "theme"),
    [
        ("chat-dark", USUAL, "inline", "dark"),
        ("chat-light", USUAL, "inline", "light"),
        ("chat-contrast", USUAL, "inline", "contrast"),
        ("chat-ansi", USUAL, "inline", "ansi"),
        ("chat-narrow", NARROW, "inline", "dark"),
        ("chat-wide", WIDE, "off", "dark"),
        ("inspector-dark", WIDE, "inspector", "dark"),
        ("inspector-light", WIDE, "inspector", "light"),
        ("inspector-usual", USUAL, "inspector", "dark"),
        ("inspector-narrow", NARROW, "inspector", "dark"),
    ],
)
def test_an_answer(tmp_path: Path, name: str, size: tuple[int, int], view: str, theme: str) -> None:
    _screen(name, tmp_path, size=size, view=view, theme_name=theme)


def test_no_color(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _screen("inspector-no-color", tmp_path, size=WIDE, view="inspector")


def test_guesses_while_they_come(tmp_path: Path) -> None:
    gate = threading.Semaphore(0)

    async def main() -> None:
        session = ScriptedSession([ANSWER], gate=gate)
        async with driven(session, tmp_path, size=USUAL, clock=lambda: 0.0) as test:
            test.composer.put("How do I sort a list?")
            await test.pilot.press("enter")
            for _ in range(3):
                gate.release()
            await test.sees("sorted with")
            await test.sees("(xs)")
            assert_snapshot(test.app, "guesses")
            gate.release(20)
            await test.idle()

    asyncio.run(main())


def test_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        failure = ModelNotFoundError("there is no model /models/big.gguf: give a path or a name")
        session = ScriptedSession(failure=failure)
        async with driven(session, tmp_path, size=USUAL) as test:
            await _settled(test)
            assert_snapshot(test.app, "error")

    asyncio.run(main())


@pytest.mark.parametrize(("name", "size"), [("download", USUAL), ("download-narrow", NARROW)])
def test_a_download(tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    async def main() -> None:
        session = _Slow()
        async with driven(session, tmp_path, size=size, wait=False) as test:
            await test.sees("38%")
            await _settled(test)
            assert_snapshot(test.app, name)
            session.seen.set()
            await test.idle()

    asyncio.run(main())


def test_help(tmp_path: Path) -> None:
    async def main() -> None:
        async with driven(ScriptedSession([ANSWER]), tmp_path, size=USUAL) as test:
            await test.pilot.press("f1")
            await test.sees("Shift+Enter")
            await _settled(test)
            assert_snapshot(test.app, "help")

    asyncio.run(main())
