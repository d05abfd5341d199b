"""What is painted and when: keys first, then the engine, then the answer that grows.

Painting an answer may scroll the whole conversation, which costs some 50 ms on a slow machine.
Where the engine needs every core, a paint stops all of its threads: there it takes one part in
forty of the time, elsewhere one in twenty-five. It waits while somebody types.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from localspec.chat.engine_thread import Answered, Failed, Loaded, News
from localspec.decoding.events import Round
from localspec.session.marks import Mark
from localspec.tui.collector import Collector
from localspec.tui.status import status_words, title_words, welcome_words
from localspec.tui.themes import legend

if TYPE_CHECKING:
    from localspec.tui.app import ChatApp

__all__ = ["Painter"]

_REST, _REST_BESIDE = 40.0, 24.0  # after painting, in the time that it took
_KEYS_FIRST_S = 0.08
_AT_MOST_S = 1.0  # until it is known what the painting took


class Painter:
    """tick() comes at most twenty times a second.

    is_stale: the conversation is another one. blinks: may the cursor?
    """

    def __init__(self, app: ChatApp) -> None:
        self._app = app
        self._chat = app.chat
        self.is_stale = self.blinks = True
        self._is_painting = False
        self._next_at = 0.0  # when the growing answer may be painted again
        self._typed_at = 0.0
        self._rounds_next = False
        self._shown: dict[str, object] = {}
        self._collector = Collector()

    def start(self) -> None:
        """The screen is there."""
        self._collector.hold()

    def stop(self) -> None:
        """The screen goes; the process is left as it was."""
        self._collector.release()

    def typed(self) -> None:
        """A key was pressed: it is answered before the answer is painted."""
        self._typed_at = time.monotonic()
        self._next_at = max(self._next_at, self._typed_at + _KEYS_FIRST_S)

    async def tick(self) -> None:
        """Take in what the speaker told, and show it."""
        if self._is_painting or not self._app.is_running or self._app._exit:
            return  # a slow paint must not be overtaken
        self._is_painting = True
        try:
            await self._paint()
        finally:
            self._is_painting = False

    def show_rounds(self) -> None:
        """The rounds of the answer that grows, or of the last one, for the inspector."""
        if self._chat.settings.view != "inspector":
            return
        rounds: Sequence[Round] = ()
        if self._chat.live is not None:
            rounds = self._chat.live.rounds
        elif (turn := self._chat.conversation.last("assistant")) is not None:
            rounds = turn.rounds
        self._app.inspector.show(rounds)

    async def _paint(self) -> None:
        if self.is_stale:  # before the news, which belong to the live view of now
            await self._sync()
        had_live = self._app.transcript.live_view
        for news, marks in self._chat.poll():
            self._hear(news, marks)
        if (had_live.live if had_live else None) is not self._chat.live or self.is_stale:
            await self._sync()
            self.show_rounds()
        now = time.monotonic()
        is_busy = self._chat.is_busy or now - self._typed_at < 1.0
        if self._is_new("blink", self._chat.live is None):
            # In an answer the engine needs the time.
            self._app.composer.cursor_blink = self.blinks and self._chat.live is None
        self._collector.look(now, is_busy=is_busy)
        if self._app.transcript.live_view is None:
            self._paint_words()
        elif now >= self._next_at:
            await self._paint_growth(now)
            self._paint_words()

    def _hear(self, news: News, marks: Sequence[Mark]) -> None:
        live_view = self._app.transcript.live_view
        if isinstance(news, Answered) and isinstance(news.event, Round):
            if live_view is not None:
                live_view.add(marks)
        elif isinstance(news, Loaded):
            self._app.loaded()
        elif isinstance(news, Failed):
            self._app.failed(news)

    async def _paint_growth(self, now: float) -> None:
        self._next_at = now + _AT_MOST_S
        self._rounds_next = not self._rounds_next
        transcript = self._app.transcript
        if self._chat.settings.view == "inspector" and self._rounds_next:
            self.show_rounds()  # in turn, so that neither takes too long
        elif transcript.live_view is not None:
            await transcript.live_view.paint(is_followed=transcript.is_followed)
        self._app.call_after_refresh(self._painted, now)

    def _painted(self, began: float) -> None:
        now = time.monotonic()
        talker = self._chat.talker
        is_beside = talker is not None and talker.n_threads < (os.cpu_count() or 1)
        self._next_at = now + (_REST_BESIDE if is_beside else _REST) * (now - began)

    async def _sync(self) -> None:
        self.is_stale = False
        self._next_at, self._rounds_next = 0.0, True  # what is new is painted now, the text first
        chat, transcript = self._chat, self._app.transcript
        await transcript.sync(chat.conversation, chat.live, chat.settings.view)
        await transcript.welcome(welcome_words(chat))

    def _paint_words(self) -> None:
        app, chat, width = self._app, self._chat, self._app.size.width - 2
        if self._is_new("title", title := title_words(chat, width)):
            app.title_line.update(Content(title))
        if self._is_new("status", words := status_words(chat, width)):
            app.status.display = bool(words)
            app.status.update(Content(words))
        if self._is_new("legend", (chat.settings.view != "off", width)):
            shows = chat.settings.view != "off"
            app.composer.border_subtitle = legend(width - 6, plain=app.no_color) if shows else None
        if self._is_new("stop", (app.can_stop, chat.live is not None)):
            app.refresh_bindings()
            app.composer.show_writing(app.can_stop and chat.live is not None)
        app.figures.paint(chat)

    def _is_new(self, what: str, value: object) -> bool:
        was, self._shown[what] = self._shown.get(what), value
        return was != value
