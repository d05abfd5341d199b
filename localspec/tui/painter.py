"""What is painted and when: keys first, then the engine, then the answer that grows.

Painting an answer may scroll the whole conversation, which costs some 50 ms on a slow machine.
Where the engine needs every core, a paint stops all of its threads: there it takes one part in
forty of the time, elsewhere one in twenty-five. It waits while somebody types.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from textual.app import App
from textual.content import Content

from localspec.chat.chat import Chat
from localspec.chat.engine_protocol import AnswerEvent, Reply
from localspec.decoding.events import Round
from localspec.session.marks import Mark
from localspec.tui.process_state import DelayedCollection
from localspec.tui.status import status_words, title_words, welcome_words
from localspec.tui.themes import legend
from localspec.tui.widgets import ChatWidgets

__all__ = ["Painter"]

_REST, _REST_BESIDE = 40.0, 24.0  # after painting, in the time that it took
_KEYS_FIRST_S = 0.08
_AT_MOST_S = 1.0  # until it is known what the painting took


class Painter:
    """tick() comes at most twenty times a second.

    on_reply: told what the engine replied, when it is not a round of an answer. is_stale: the
    conversation is another one. blinks: may the cursor?
    """

    def __init__(
        self,
        app: App[Any],
        chat: Chat,
        widgets: ChatWidgets,
        on_reply: Callable[[Reply], None],
    ) -> None:
        self._app = app
        self._chat = chat
        self._widgets = widgets
        self._on_reply = on_reply
        self.is_stale = self.blinks = True
        self._is_painting = False
        self._next_at = 0.0  # when the growing answer may be painted again
        self._typed_at = 0.0
        self._rounds_next = False
        self._shown: dict[str, object] = {}
        self._collection = DelayedCollection()

    def start(self) -> None:
        """The screen is there."""
        self._collection.start()

    def stop(self) -> None:
        """The screen goes; the process is left as it was."""
        self._collection.stop()

    def typed(self) -> None:
        """A key was pressed: it is answered before the answer is painted."""
        self._typed_at = time.monotonic()
        self._next_at = max(self._next_at, self._typed_at + _KEYS_FIRST_S)

    async def tick(self) -> None:
        """Take in what the engine replied, and show it."""
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
        shown = self._chat.live or self._chat.conversation.last("assistant")
        self._widgets.inspector.lane.show(shown.rounds if shown is not None else ())

    async def _paint(self) -> None:
        if self.is_stale:  # before the replies, which belong to the live view of now
            await self._sync()
        live_view = self._widgets.transcript.live_view
        for reply, marks in self._chat.poll():
            self._hear(reply, marks)
        if (live_view.live if live_view else None) is not self._chat.live or self.is_stale:
            await self._sync()
            self.show_rounds()
        now = time.monotonic()
        is_busy = self._chat.is_busy or now - self._typed_at < 1.0
        if self._is_new("blink", self._chat.live is None):
            # In an answer the engine needs the time.
            self._widgets.composer.cursor_blink = self.blinks and self._chat.live is None
        self._collection.collect_when_quiet(now, is_busy=is_busy)
        if self._widgets.transcript.live_view is None:
            self._paint_lines()
        elif now >= self._next_at:
            await self._paint_growth(now)
            self._paint_lines()

    def _hear(self, reply: Reply, marks: Sequence[Mark]) -> None:
        if not (isinstance(reply, AnswerEvent) and isinstance(reply.event, Round)):
            self._on_reply(reply)
        elif (live_view := self._widgets.transcript.live_view) is not None:
            live_view.add(marks)

    async def _paint_growth(self, now: float) -> None:
        self._next_at = now + _AT_MOST_S
        self._rounds_next = not self._rounds_next
        transcript = self._widgets.transcript
        if self._chat.settings.view == "inspector" and self._rounds_next:
            self.show_rounds()  # in turn, so that neither takes too long
        elif transcript.live_view is not None:
            await transcript.live_view.paint(is_followed=transcript.is_followed)
        self._app.call_after_refresh(self._painted, now)

    def _painted(self, began: float) -> None:
        now = time.monotonic()
        pair = self._chat.pair
        is_beside = pair is not None and pair.n_threads < (os.cpu_count() or 1)
        self._next_at = now + (_REST_BESIDE if is_beside else _REST) * (now - began)

    async def _sync(self) -> None:
        self.is_stale = False
        self._next_at, self._rounds_next = 0.0, True  # what is new is painted now, the text first
        chat, transcript = self._chat, self._widgets.transcript
        await transcript.sync(chat.conversation, chat.live, chat.settings.view)
        await transcript.welcome(welcome_words(chat))

    def _paint_lines(self) -> None:
        chat, widgets, width = self._chat, self._widgets, self._app.size.width - 2
        if self._is_new("title", title := title_words(chat, width)):
            widgets.title.update(Content(title))
        if self._is_new("status", words := status_words(chat, width)):
            widgets.status.display = bool(words)
            widgets.status.update(Content(words))
        shows_marks = chat.settings.view != "off"
        if self._is_new("legend", (shows_marks, width)):
            shown = legend(width - 6, plain=self._app.no_color) if shows_marks else None
            widgets.composer.border_subtitle = shown
        is_writing = chat.can_stop and chat.live is not None
        if self._is_new("stop", (chat.can_stop, is_writing)):
            self._app.refresh_bindings()
            widgets.composer.show_writing(is_writing)
        widgets.figures.paint(chat)

    def _is_new(self, what: str, value: object) -> bool:
        was, self._shown[what] = self._shown.get(what), value
        return was != value
