"""The answer while it grows: marked tokens, or Markdown when speculation is not shown.

Painted at the pace of the app's clock, never once a token. Finished lines are frozen in widgets
of their own, so that a long answer costs no more to paint than a short one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeAlias

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from localspec.chat.live_answer import LiveAnswer
from localspec.chat.thinking import split
from localspec.session.marks import Mark
from localspec.tui.markdown_text import MarkdownText, Piece, Pieces
from localspec.tui.status import progress_bar
from localspec.tui.turn_view import marked_content, model_name, thinking_title
from localspec.visible import visible

__all__ = ["LiveView"]

_FLASH_S = 1.5  # how long a rejected token is seen, from its first painting
_FREEZE_OVER = 600  # characters of the part that is painted again
_THOUGHT_SHOWN = 2_000  # characters of opened thinking, its end
_MARKDOWN_EVERY_S = 0.1
_REST = 5.0  # painting Markdown may take one part in so many of the time

_Tail: TypeAlias = "list[tuple[float | None, Mark]]"  # (when it was painted first, mark)


class LiveView(Vertical):
    """One growing answer."""

    DEFAULT_CSS = """
    LiveView { height: auto; padding: 0 1; margin-bottom: 1; border-left: outer $success; }
    LiveView .head { color: $text-muted; height: auto; }
    LiveView .thinking { color: $text-muted; height: auto; }
    LiveView Static { height: auto; }
    """

    def __init__(self, live: LiveAnswer, *, shows_marks: bool) -> None:
        super().__init__()
        self.live = live
        self.shows_marks = shows_marks
        self._tail: _Tail = []
        self._thought: _Tail = []  # the end of the thinking, out of the tail
        self._n_passed = len(live.text)  # characters of the text in front of the tail
        self._tail_view = Static(markup=False)
        self._tail_height = -1  # lines
        self._pieces = Pieces()
        self._growing = MarkdownText(Piece(""))
        self._n_mounted = 0  # pieces before the growing one
        self._n_written = 0  # characters of the answer that are shown
        self._next_at = 0.0
        self._thinking_open = False
        self._drawn_head = ""
        self._head = Static(classes="head", markup=False)
        self._thinking = Static(classes="thinking", markup=False)
        self._thinking.display = False

    def compose(self) -> ComposeResult:
        """Head, thinking, text."""
        yield self._head
        yield self._thinking
        if not self.shows_marks:
            yield self._growing
        else:
            if self.live.text:  # continued: its last line grows
                parts = split(self.live.text, opened=self.live.turn.opened)
                is_half_a_mark = not parts.answer and parts.thinking is None
                said = self.live.text if is_half_a_mark else parts.answer
                before, line_end, line = said.rpartition("\n")
                if line_end:
                    yield Static(Content(visible(before)), markup=False)
                self._tail[:0] = [(0.0, Mark(line, "target"))] if line else []
                self._n_passed -= len(line)
            yield self._tail_view

    def add(self, marks: Sequence[Mark]) -> None:
        """Take in what a round added; nothing is painted yet."""
        self._tail += [(None, mark) for mark in marks]

    @property
    def shows_rejected(self) -> bool:
        """True while a rejected token is in sight."""
        return any(mark.kind == "rejected" for _, mark in self._tail)

    async def paint(self, *, is_followed: bool) -> None:
        """Show what came since. is_followed: the reader looks at the end of the text."""
        self._paint_head()
        if self.shows_marks:
            await self._paint_marks()
        else:
            await self._paint_markdown(is_followed=is_followed)

    def toggle_thinking(self) -> None:
        """Open or fold the thinking."""
        self._thinking_open = not self._thinking_open

    def _paint_head(self) -> None:
        live = self.live
        words = [model_name(live.turn)]
        if live.stopping:
            words.append("stopping …")
        elif live.is_reading and live.prompt_total:
            bar = progress_bar(live.prompt_done / live.prompt_total, 10)
            seconds = time.monotonic() - live.started
            words.append(f"reading {live.prompt_done:,} of {live.prompt_total:,} {bar}")
            words.append(f"{seconds:.1f} s")
        elif live.is_reading:
            words.append("reading …")
        elif live.figures.first_token_s is not None:
            words.append(f"first token after {live.figures.first_token_s:.2f} s")
        head = visible(" · ".join(words))
        if head != self._drawn_head:
            self._drawn_head = head
            self._head.update(Content(head))

    async def _paint_marks(self) -> None:
        parts = split(self.live.text, opened=self.live.turn.opened)
        if parts.thinking is not None:
            self._pass_thinking(len(self.live.text) - len(parts.answer))
            self._paint_thinking(parts.thinking, is_open=parts.is_open)
        elif not parts.answer:
            return  # half a mark: it may yet open the thinking
        kept = _unfaded(self._tail)
        self._tail = kept
        if sum(len(mark.text) for _, mark in kept) > _FREEZE_OVER:
            await self._freeze()
        plain = self.app.no_color
        shown = marked_content((mark for _, mark in self._tail), plain=plain)
        height = shown.get_height({}, max(1, self._tail_view.content_size.width))
        self._tail_view.update(shown, layout=height != self._tail_height)
        self._tail_height = height

    def _pass_thinking(self, end: int) -> None:
        """Move the marks of the first `end` characters from the tail to the thinking."""
        while self._tail and self._n_passed < end:
            at, mark = self._tail.pop(0)
            if mark.kind != "rejected":
                n = min(len(mark.text), end - self._n_passed)
                self._n_passed += n
                if n < len(mark.text):
                    self._tail.insert(0, (at, Mark(mark.text[n:], mark.kind)))
                    mark = Mark(mark.text[:n], mark.kind)
            self._thought.append((at, mark))
        self._thought = _unfaded(self._thought)
        while sum(len(mark.text) for _, mark in self._thought) > _THOUGHT_SHOWN:
            self._thought.pop(0)

    async def _freeze(self) -> None:
        """Move whole lines out of the part that is painted again."""
        last = max(
            (i for i, (_, m) in enumerate(self._tail) if m.kind != "rejected" and "\n" in m.text),
            default=None,
        )
        if last is None:
            return
        at, mark = self._tail[last]
        cut = mark.text.rindex("\n")
        before = [m for _, m in self._tail[:last] if m.kind != "rejected"]
        frozen = [*before, Mark(mark.text[:cut], mark.kind)]
        rest = Mark(mark.text[cut + 1 :], mark.kind)
        self._tail = [*([(at, rest)] if rest.text else []), *self._tail[last + 1 :]]
        await self.mount(Static(marked_content(frozen), markup=False), before=self._tail_view)

    async def _paint_markdown(self, *, is_followed: bool) -> None:
        parts = split(self.live.text, opened=self.live.turn.opened)
        self._paint_thinking(parts.thinking, is_open=parts.is_open)
        now = time.monotonic()
        if now < self._next_at or len(parts.answer) <= self._n_written:
            return
        last = self._pieces.push(parts.answer)
        new = [MarkdownText(piece) for piece in self._pieces.done[self._n_mounted :]]
        if new:
            await self.mount_all(new, before=self._growing)
            self._n_mounted += len(new)
        self._growing.update(last)
        self._n_written = len(parts.answer)
        took = time.monotonic() - now
        self._next_at = now + max(_MARKDOWN_EVERY_S if is_followed else 1.0, _REST * took)

    def _paint_thinking(self, thinking: str | None, *, is_open: bool) -> None:
        if thinking is None:
            return
        live = self.live
        seconds = live.thinking_s
        if seconds is None and live.thinking_since is not None:
            seconds = time.monotonic() - live.thinking_since
        title = thinking_title(seconds, is_open=is_open, folded=not self._thinking_open)
        shown = Content(title)
        if self._thinking_open and self._thought:
            marks = (mark for _, mark in self._thought)
            shown = Content.assemble(title, "\n", marked_content(marks, plain=self.app.no_color))
        elif self._thinking_open:
            shown = Content(f"{title}\n{visible(thinking[-_THOUGHT_SHOWN:])}")
        self._thinking.display = True
        self._thinking.update(shown)


def _unfaded(tail: _Tail) -> _Tail:
    """What is painted now: without the rejected tokens that were seen long enough."""
    now = time.monotonic()
    return [
        (now if at is None else at, mark)
        for at, mark in tail
        if mark.kind != "rejected" or at is None or now - at < _FLASH_S
    ]
