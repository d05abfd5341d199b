"""The conversation on the screen: the branch that is read, and the answer that grows.

Sticks to the end until the reader scrolls up. Long conversations show their last turns; going up
past the first one brings more.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from localspec.chat.conversation import Conversation
from localspec.chat.live_answer import LiveAnswer
from localspec.tui.live_view import LiveView
from localspec.tui.turn_view import TurnView

__all__ = ["Transcript"]

_N_SHOWN = 16


class Transcript(VerticalScroll, can_focus=False):
    """Shows what it is given by sync()."""

    DEFAULT_CSS = """
    Transcript { height: 1fr; padding: 1 0 0 0; scrollbar-size-vertical: 1; }
    Transcript > .more, Transcript > .welcome { color: $text-muted; padding: 0 2; height: auto; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "focus_turn(-1)", "Messages", show=False),
        Binding("down", "focus_turn(1)", "Messages", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self.n_shown = _N_SHOWN
        self.live_view: LiveView | None = None

    def on_mount(self) -> None:
        """Stick to the end."""
        self.anchor()

    @property
    def is_followed(self) -> bool:
        """True while the end is in sight."""
        return self.max_scroll_y - self.scroll_y <= 1

    async def sync(self, conversation: Conversation, live: LiveAnswer | None, view: str) -> None:
        """Show the branch that is read, changing as little as may be."""
        path = conversation.path()
        if live is not None and live.before is not None:
            path = [turn for turn in path if turn.id != live.before.id]
        hidden = max(0, len(path) - self.n_shown)
        path = path[hidden:]
        views = list(self.query(TurnView))
        same = 0
        for shown, turn in zip(views, path, strict=False):
            if shown.turn is not turn or shown.place != conversation.siblings(turn.id):
                break
            same += 1
        marked = view == "inspector"
        left = next((shown.turn.parent for shown in views[same:] if shown.has_focus), False)
        with self.app.batch_update():
            for shown in views[same:]:
                await shown.remove()
            await self.query(".more, .welcome").remove()
            if hidden:
                more = Static(f"↑ {hidden} earlier messages", classes="more", markup=False)
                await self.mount(more, before=0)
            await self._sync_live(live, view)
            new = [
                TurnView(turn, conversation, marked=marked and turn is path[-1])
                for turn in path[same:]
            ]
            if new and self.live_view is not None:
                await self.mount_all(new, before=self.live_view)
            elif new:
                await self.mount_all(new)
        for shown in new:
            if left is not False and shown.turn.parent == left:
                shown.focus()  # another branch has taken the place of the focused message

    async def welcome(self, words: str) -> None:
        """What an empty chat says."""
        await self.query(".welcome").remove()
        if not self.query(TurnView) and self.live_view is None:
            await self.mount(Static(Content(words), classes="welcome", markup=False))

    def follow(self) -> None:
        """Go to the end and stay there."""
        self.anchor()

    def show_more(self) -> bool:
        """Show more of a long conversation; True when sync() is due."""
        if not self.query(".more"):
            return False
        self.n_shown += _N_SHOWN
        return True

    def action_focus_turn(self, step: int) -> None:
        """The message above or below the focused one."""
        views = list(self.query(TurnView))
        at = next((i for i, view in enumerate(views) if view.has_focus), None)
        if at is None or not views:
            return
        views[max(0, min(len(views) - 1, at + step))].focus()

    @property
    def last_turn(self) -> TurnView | None:
        """The last message that is shown."""
        return next(iter(reversed(self.query(TurnView))), None)

    async def _sync_live(self, live: LiveAnswer | None, view: str) -> None:
        shows_marks = view != "off"
        shown = self.live_view
        if shown is not None and (shown.live is not live or shown.shows_marks != shows_marks):
            await shown.remove()
            self.live_view = shown = None
        if live is not None and shown is None:
            self.live_view = LiveView(live, shows_marks=shows_marks)
            await self.mount(self.live_view)
