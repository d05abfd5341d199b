"""The main screens, cell by cell (see snapshot.py)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.engine_protocol import Downloading, OpenPair
from localspec.errors import ModelNotFoundError
from tests.scripted_chat import ScriptedSession, plain, round_of, script
from tests.tui.driving import Driven, run
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


@pytest.mark.parametrize(
    ("view", "screens"),
    [
        (
            "inline",
            [
                ("chat-dark", USUAL, "dark"),
                ("chat-light", USUAL, "light"),
                ("chat-contrast", USUAL, "contrast"),
                ("chat-ansi", USUAL, "ansi"),
                ("chat-narrow", NARROW, "dark"),
            ],
        ),
        ("off", [("chat-wide", WIDE, "dark")]),
        (
            "inspector",
            [
                ("inspector-dark", WIDE, "dark"),
                ("inspector-light", WIDE, "light"),
                ("inspector-usual", USUAL, "dark"),
                ("inspector-narrow", NARROW, "dark"),
            ],
        ),
    ],
)
def test_an_answer(
    tmp_path: Path, view: str, screens: list[tuple[str, tuple[int, int], str]]
) -> None:
    async def body(test: Driven) -> None:
        await test.ask("How do I sort a list?")
        for name, size, theme in screens:
            test.app.front_end.show_theme(theme)
            await test.pilot.resize_terminal(*size)
            await assert_snapshot(test, name)

    size = screens[0][1]
    run(
        tmp_path,
        body,
        ScriptedSession([ANSWER]),
        size=size,
        settings={"view": view},
        clock=lambda: 0.0,
    )


def test_no_color(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def body(test: Driven) -> None:
        await test.ask("How do I sort a list?")
        await assert_snapshot(test, "inspector-no-color")

    run(
        tmp_path,
        body,
        ScriptedSession([ANSWER]),
        size=WIDE,
        settings={"view": "inspector"},
        clock=lambda: 0.0,
    )


def test_draft_tokens_while_they_come(tmp_path: Path) -> None:
    gate = threading.Semaphore(3)

    async def body(test: Driven) -> None:
        test.composer.put("How do I sort a list?")
        await test.pilot.press("enter")
        await test.sees("sorted with")
        await test.sees("(xs)")
        await assert_snapshot(test, "draft-tokens")
        gate.release(20)
        await test.idle()

    session = ScriptedSession([ANSWER], gate=gate)
    run(tmp_path, body, session, size=USUAL, clock=lambda: 0.0)


def test_an_error(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await assert_snapshot(test, "error")

    failure = ModelNotFoundError("there is no model /models/big.gguf: give a path or a name")
    run(tmp_path, body, ScriptedSession(failure=failure), size=USUAL)


@pytest.mark.parametrize(("name", "size"), [("download", USUAL), ("download-narrow", NARROW)])
def test_a_download(tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    session = _Slow()

    async def body(test: Driven) -> None:
        await test.sees("38%")
        await assert_snapshot(test, name)
        session.seen.set()
        await test.idle()

    run(tmp_path, body, session, size=size, wait=False)


def test_help(tmp_path: Path) -> None:
    async def body(test: Driven) -> None:
        await test.sees("2 threads")  # the screen behind the help is not painted again
        await test.sees("f4 Copy")
        await test.pilot.press("f1")
        await test.sees("Shift+Enter")
        await assert_snapshot(test, "help")

    run(tmp_path, body, ScriptedSession([ANSWER]), size=USUAL)
