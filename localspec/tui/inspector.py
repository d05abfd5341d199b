"""The inspector: a lane of rounds, and one of their tokens in full.

The lane draws the lines that are seen, and no others, so thousands of rounds cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from localspec.decoding.events import Alternative, Round, RoundToken
from localspec.tui.status import joined_to_fit
from localspec.tui.themes import VERDICT_SIGNS, shown_token

__all__ = ["Inspector", "Lane", "round_words", "token_words"]

_BAR = 20
_SIGNS = ("✓ accepted", "✗ rejected", "→ correction", "+ bonus", "= plain", "· discarded")


class Lane(ScrollView, can_focus=True):
    """One line a round: its number, K, and a chip for each token with its verdict."""

    DEFAULT_CSS = """
    Lane { height: 1fr; min-height: 4; scrollbar-size-vertical: 1; overflow-x: hidden; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "round(-1)", "Round", show=False),
        Binding("down", "round(1)", "Round"),
        Binding("left", "token(-1)", "Token", show=False),
        Binding("right", "token(1)", "Token"),
        Binding("pageup", "round(-10)", "Back", show=False),
        Binding("pagedown", "round(10)", "On", show=False),
        Binding("home", "round(-1000000)", "First", show=False),
        Binding("end", "round(1000000)", "Last", show=False),
    ]

    @dataclass
    class Picked(Message):
        """Another token is looked at."""

        round: Round
        token: int

    def __init__(self) -> None:
        super().__init__()
        self.rounds: Sequence[Round] = ()
        self.at = 0
        self.token = 0
        self.follows = True  # the last round is looked at as it comes

    def show(self, rounds: Sequence[Round]) -> None:
        """Look at these rounds; the same list grown longer keeps the place."""
        grown = len(rounds) >= len(self.rounds) and self.rounds and rounds[0] is self.rounds[0]
        self.rounds = rounds
        if not grown:
            self.follows, self.at, self.token = True, 0, 0
        self.virtual_size = Size(self.size.width, len(rounds))
        if self.follows and rounds:
            self._go(len(rounds) - 1, _telling(rounds[-1]))
        self.refresh()

    def action_round(self, step: int) -> None:
        """Another round; at the last one the lane follows again."""
        if self.rounds:
            at = max(0, min(len(self.rounds) - 1, self.at + step))
            self.follows = at == len(self.rounds) - 1
            self._go(at, _telling(self.rounds[at]))

    def action_token(self, step: int) -> None:
        """Another token of the round."""
        if self.rounds:
            n = len(self.rounds[self.at].tokens)
            self.follows = False
            self._go(self.at, max(0, min(n - 1, self.token + step)))

    def on_click(self, event: object) -> None:
        """A click picks a round."""
        y = getattr(event, "y", 0) + self.scroll_offset.y
        if 0 <= y < len(self.rounds):
            self.follows = False
            self._go(y, _telling(self.rounds[y]))

    def on_resize(self) -> None:
        """The chosen round stays in sight."""
        if self.rounds:
            self.call_after_refresh(self._scroll_to_chosen)

    def render_line(self, y: int) -> Strip:
        """One round."""
        at = y + self.scroll_offset.y
        width = self.size.width
        base = self.rich_style
        if at >= len(self.rounds):
            return Strip.blank(width, base)
        round_ = self.rounds[at]
        chosen = at == self.at
        number = f"{'›' if chosen else ' '}{round_.index + 1:>4} K{round_.n_draft:<2} "
        segments: list[Segment] = []
        seen_to = width  # the chosen token's last cell must lie in sight
        for i, token in enumerate(round_.tokens):
            sign = "=" if not round_.n_draft else VERDICT_SIGNS[token.verdict]
            chip = _CHIPS[token.verdict, token.source == "ngram"]
            style = base + (chip.without_color if self.app.no_color else chip)
            if chosen and i == self.token:
                style += Style(reverse=True)
            segments.append(Segment(f"{sign}{shown_token(token.text)}", style))
            segments.append(Segment(" ", base))
            if chosen and i == self.token:
                seen_to = len(number) + sum(segment.cell_length for segment in segments)
        hidden = max(0, seen_to - width)
        chips = Strip(segments).crop(hidden)
        return Strip([Segment(number, base), *chips]).adjust_cell_length(width, base)

    def _go(self, at: int, token: int) -> None:
        self.at, self.token = at, token
        self._scroll_to_chosen()
        self.refresh()
        self.post_message(self.Picked(self.rounds[at], token))

    def _scroll_to_chosen(self) -> None:
        self.scroll_to_region(Region(0, self.at, 1, 1), animate=False, force=True)


_CHIPS = {
    (verdict, copied): Style.parse(style)
    for copied in (False, True)
    for verdict, style in {
        "accepted": "italic underline cyan" if copied else "underline green",
        "rejected": "strike red",
        "discarded": "dim",
        "bonus": "",
        "correction": "bold",
    }.items()
}


class Inspector(Vertical):
    """The lane above, what is known of the chosen token below."""

    DEFAULT_CSS = """
    Inspector { border: round $border; }
    Inspector:focus-within { border: round $primary; }
    Inspector #details { height: 60%; border-top: solid $border; padding: 0 1; }
    Inspector #details Static { height: auto; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane()
        self._details = Static("Ask something: its rounds appear here.", markup=False)

    def compose(self) -> ComposeResult:
        """Lane and details."""
        yield self.lane
        with VerticalScroll(id="details", can_focus=False):
            yield self._details

    def on_mount(self) -> None:
        """The frame says what it is."""
        self.border_title = "rounds"

    def on_resize(self) -> None:
        """And what the signs mean, as far as it fits."""
        self.border_subtitle = Content(joined_to_fit(_SIGNS, self.size.width - 4, "  "))

    def on_lane_picked(self, event: Lane.Picked) -> None:
        """Show what is known of the chosen token."""
        details = self._details
        if not event.round.tokens:
            details.update(Content("a round without tokens: it released the rest of the text"))
            return
        words = [round_words(event.round), *token_words(event.round, event.token)]
        worth = worth_words(event.round)
        details.update(Content("\n".join([*words, *([""] if worth else []), *worth])))


def round_words(round_: Round) -> str:
    """One line about a round."""
    return (
        f"round {round_.index + 1}, {round_.depth:,} tokens before it · K {round_.n_draft}, "
        f"accepted {round_.n_accepted} · {round_.verifier} · draft {round_.draft_s * 1e3:.0f} ms, "
        f"verify {round_.verify_s * 1e3:.0f} ms, all {round_.elapsed_s * 1e3:.0f} ms"
    )


def token_words(round_: Round, at: int) -> list[str]:
    """What is known of one token: p, q, its chance of acceptance, and the alternatives."""
    token = round_.tokens[at]
    source = {"model": "the draft model", "ngram": "a copy of the text"}.get(
        token.source, "the target"
    )
    lines = [
        "",
        f"token {at + 1} of {len(round_.tokens)}: {shown_token(token.text)}  (id {token.id}), by "
        f"{source}: {token.verdict if round_.n_draft else 'plain'}",
        f"p {token.p:.3f}"
        + (f"   q {token.q:.3f}" if token.q is not None else "")
        + f"   before the sampling options: p {token.p_raw:.3f}"
        + (f", q {token.q_raw:.3f}" if token.q_raw is not None else ""),
    ]
    if token.source in ("model", "ngram") and token.verdict != "discarded":
        lines.append(f"chance of acceptance min(1, p/q) {_chance(token):.0%}")
    if token.verdict == "discarded":
        lines.append("not verified: a token before it was rejected, or the answer ended")
    return [*lines, *_alternatives(token)]


def worth_words(round_: Round) -> list[str]:
    """What the controller expected of each K, in tokens over plain steps."""
    if not round_.worth:
        return ["K was set, not chosen by the controller"] if round_.n_draft else []
    if len(round_.worth) == 1:
        return ["the controller chose a plain step: no draft was expected to pay"]
    top = max([0.01, *(worth for worth in round_.worth if math.isfinite(worth))])
    lines = ["the controller: expected tokens gained over plain steps, for each K"]
    for k, worth in enumerate(round_.worth):
        if not math.isfinite(worth):
            lines.append(f" K {k:<2}   not allowed here")
            continue
        bar = "█" * round(_BAR * max(0.0, worth) / top)
        chosen = " ◀ chosen" if k == round_.n_draft else ""
        lines.append(f" K {k:<2} {worth:+6.2f} {bar}{chosen}")
    return lines


def _telling(round_: Round) -> int:
    """The token to look at first: the rejected one, else the last."""
    for i, token in enumerate(round_.tokens):
        if token.verdict == "rejected":
            return i
    return max(0, len(round_.tokens) - 1)


def _chance(token: RoundToken) -> float:
    return min(1.0, token.p / token.q) if token.q else float(token.p > 0)


def _alternatives(token: RoundToken) -> list[str]:
    if not token.p_top:
        return ["alternatives are recorded only while draft tokens are shown (Ctrl+T)"]
    lines = ["", f"{'target':<24}{'draft' if token.q_top else ''}"]
    for i in range(max(len(token.p_top), len(token.q_top))):
        lines.append(f"{_named(token.p_top, i):<24}{_named(token.q_top, i)}".rstrip())
    return lines


def _named(top: Sequence[Alternative], i: int) -> str:
    return f"{top[i].prob:6.3f} {shown_token(top[i].text)[:15]}" if i < len(top) else ""
