"""Driving the app in tests: start it on a scripted pair, wait for what must happen, read it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

from textual import _wait
from textual.pilot import Pilot
from textual.widgets import Static

from localspec.chat.chat import Chat
from localspec.chat.engine_thread import EngineThread
from localspec.chat.saved import SavedChat
from localspec.chat.settings import ChatSettings
from localspec.tui import painter
from localspec.tui.app import ChatApp
from localspec.tui.composer import Composer
from tests.scripted_chat import ScriptedSession, plain, round_of, script

__all__ = ["ANSWER", "Driven", "driven", "run", "shown"]

ANSWER = script(
    [
        round_of(0, ["Here", " is"], " code"),
        round_of(1, [":\n\n```py\n"], "a", rejected="b"),
        round_of(2, [" ="], " 1\n", source="ngram"),
        plain(3, "```\n"),
    ]
)


def shown(app: ChatApp) -> str:
    """The characters on the screen, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


class Driven:
    """An app under test."""

    def __init__(self, app: ChatApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def chat(self) -> Chat:
        return self.app.chat

    @property
    def composer(self) -> Composer:
        return self.app.widgets.composer

    async def until(self, condition: Callable[[], Any], what: str = "") -> None:
        """Wait for it, five seconds at most."""
        deadline = time.monotonic() + 5
        while not condition():
            assert time.monotonic() < deadline, f"{what or 'it'} did not happen:\n{shown(self.app)}"
            await asyncio.sleep(0.01)
        await self.pilot.pause()

    async def sees(self, words: str) -> None:
        """Wait until the screen shows the words."""
        await self.until(lambda: words in shown(self.app), f"{words!r}")

    async def idle(self) -> None:
        """Wait until nothing is loaded or written, and the screen tells so."""
        await self.pilot.pause()  # messages that are on their way
        await self.until(lambda: not self.chat.is_busy and (self.chat.pair or self.chat.failure))
        await self.until(
            lambda: self.app.widgets.transcript.live_view is None and not self.app.painter.is_stale
        )

    async def painted(self, n_rounds: int) -> None:
        """Wait until so many rounds of the growing answer have been painted."""
        await self.until(lambda: self.chat.live is not None
                         and len(self.chat.live.rounds) == n_rounds)  # fmt: skip
        seen = self.app.painter._next_at
        await self.until(lambda: self.app.painter._next_at != seen, "painting")

    async def ask(self, text: str) -> None:
        """Write and send."""
        self.composer.put(text)
        await self.pilot.press("enter")
        await self.idle()

    def line(self, selector: str) -> str:
        """The text of a Static."""
        return str(self.app.query_one(selector, Static).content)


@contextlib.asynccontextmanager
async def driven(
    session: ScriptedSession,
    folder: Path,
    *,
    size: tuple[int, int] = (120, 40),
    saved: SavedChat | None = None,
    wait: bool = True,
    settings: dict[str, Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
    **given: Any,
) -> AsyncIterator[Driven]:
    """The app on a scripted pair, loaded."""
    chosen = ChatSettings(**{"target": "/models/big.gguf", "draft": None, **(settings or {})})
    chat = Chat(EngineThread(session.open), chosen, saved or SavedChat(folder, "chat"), clock=clock)
    app = ChatApp(chat, may_fetch=True, **given)
    app.painter.blinks = False
    try:
        with (
            mock.patch.multiple(painter, _REST=1.0, _REST_BESIDE=1.0),  # no engine needs the time
            # Textual waits 20 ms and more behind each key until the process idles
            mock.patch.multiple(_wait, SLEEP_GRANULARITY=0.008, SLEEP_IDLE=0.002),
        ):
            async with app.run_test(size=size, notifications=True) as pilot:
                test = Driven(app, pilot)
                if wait:
                    await test.idle()
                yield test
    finally:
        assert chat.close()


def run(
    folder: Path, body: Callable[[Driven], Awaitable[None]], session: ScriptedSession, **given: Any
) -> None:
    async def main() -> None:
        async with driven(session, folder, **given) as test:
            await body(test)

    asyncio.run(main())
