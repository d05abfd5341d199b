"""The lines around the conversation: title, what goes on, why nothing is drafted, figures."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Sparkline, Static

from localspec.chat.chat import Chat
from localspec.control.economics import COPIES_ALONE
from localspec.visible import visible

__all__ = [
    "FiguresBar",
    "fitted",
    "joined_to_fit",
    "progress_bar",
    "status_words",
    "title_words",
    "welcome_words",
]

_RESTS = "the draft model rests"
_SPARKLINE_FROM = 100  # columns


def title_words(chat: Chat, width: int) -> str:
    """Which models, where they run."""
    pair = chat.pair
    if pair is None:
        return fitted("localspec", width)
    target = pair.target_path.stem
    draft = pair.draft_path.stem if pair.draft_path is not None else "no draft model"
    where = f"{pair.device}, {pair.n_threads} thread{'' if pair.n_threads == 1 else 's'}"
    exact = ", exact" if pair.exact else ""
    for words in (
        f"localspec · {target} + {draft} · {where}{exact}",
        f"{target} + {draft}{exact}",
    ):
        if len(words) <= width:
            return visible(words)
    return fitted(target + exact, width)


def status_words(chat: Chat, width: int) -> str:
    """What takes time now, what failed, or why nothing is drafted; two lines at most."""
    if chat.loading is not None:
        waits = " · your question waits" if chat.waiting is not None else ""
        download = chat.download
        if download is None or not download.total:
            return fitted(chat.loading + waits, width)
        bar = progress_bar(download.done / download.total, 10 if width < 60 else 24)
        done, total = download.done / 1e6, download.total / 1e6
        share = f"{bar} {done / total:.0%} · {done:,.0f}/{total:,.0f} MB"
        return fitted(f"{share} · Esc stops · {download.label}{waits}", width)
    if chat.failure is not None:
        return visible(chat.failure)
    if chat.saved.broken is not None:
        return visible(chat.saved.broken)
    return fitted(_why_not_drafting(chat), 2 * width - 4)  # a line may end before its width


def _why_not_drafting(chat: Chat) -> str:
    options = chat.settings.options
    if options.drafter == "none":
        return "drafting is off (/drafter auto turns it on)"
    if chat.pair is None:
        return ""
    last = chat.conversation.last("assistant") if chat.live is None else None
    for note in last.notes if last is not None else ():
        is_of_another_pair = note.startswith(COPIES_ALONE) and chat.pair.draft_path is None
        if "draft" in note and not is_of_another_pair:
            return note.replace(COPIES_ALONE, _RESTS)
    is_automatic = options.drafter == "auto" and options.n_draft is None
    if chat.pair.why_no_draft_model and is_automatic:
        return chat.pair.why_no_draft_model.replace(COPIES_ALONE, _RESTS)
    if last is not None and last.timings.get("predicted_n") and not last.timings.get("draft_n"):
        return "drafting did not pay in this answer; /ndraft 4 drafts in every round"
    return ""


def welcome_words(chat: Chat) -> str:
    """What an empty conversation says."""
    return (
        "Ask something. Accepted draft tokens are underlined, rejected ones struck through for a "
        "moment. Ctrl+T hides them, or shows every round; F1 lists the keys, / the commands."
        if chat.settings.view != "off"
        else "Ask something. F1 lists the keys, / the commands; Ctrl+T shows the draft tokens."
    )


def progress_bar(share: float, n_cells: int) -> str:
    """A bar of n_cells. share: from 0 to 1."""
    n_full = round(n_cells * share)
    return "━" * n_full + "─" * (n_cells - n_full)


def fitted(words: str, width: int) -> str:
    """On one line, cut to the width with an ellipsis."""
    words = visible(words.replace("\n", " "))
    shown = Content(words)
    if shown.cell_length <= width:
        return words
    return str(shown.truncate(max(1, width), ellipsis=True))


class FiguresBar(Horizontal):
    """One line of figures, with a sparkline of the speed where there is room."""

    DEFAULT_CSS = """
    FiguresBar { height: 1; padding: 0 1; color: $text-muted; }
    FiguresBar #figures { width: 1fr; height: 1; }
    FiguresBar Sparkline { width: 24; height: 1; margin-left: 1; display: none; }
    FiguresBar Sparkline > .sparkline--max-color { color: $success; }
    FiguresBar Sparkline > .sparkline--min-color { color: $success 60%; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown = ""
        self._line = Static(id="figures", markup=False)
        self._sparkline = Sparkline([], id="speed")

    def compose(self) -> ComposeResult:
        """The line and the sparkline."""
        yield self._line
        yield self._sparkline

    def paint(self, chat: Chat) -> None:
        """Show the chat's figures of now."""
        width = max(10, self.size.width - 2)
        history = chat.figures.history if chat.figures is not None else ()
        sparkline = self._sparkline
        wide = width >= _SPARKLINE_FROM and len(history) > 1
        sparkline.display = wide
        if wide:
            sparkline.data = list(history)
            width -= 25
        words = joined_to_fit(figure_words(chat), width, " · ")
        if words != self._shown:
            self._shown = words
            self._line.update(Content(words), layout=False)  # one line, always


def figure_words(chat: Chat) -> list[str]:
    """The most telling first; the bar shows as many as fit."""
    words: list[str] = []
    figures = chat.figures
    if figures is not None and figures.n_passes:
        live = chat.live is not None
        words.append(f"{figures.now if live else figures.mean:.1f} tok/s")
        if figures.speed_up is not None and chat.settings.options.drafter != "none":
            words.append(f"{figures.speed_up:.2f} × plain")
        if figures.acceptance is not None:
            words.append(f"accepted {figures.acceptance:.0%}")
    if chat.pair is not None:
        words.append(f"ctx {_context_used(chat):,}/{chat.pair.n_ctx:,}")
    if figures is not None and figures.n_passes:
        words.append(f"{figures.tokens_per_pass:.2f} tok/pass")
        words.append(f"K {figures.n_draft}")
        words.append("draft {:.0%} verify {:.0%} other {:.0%}".format(*figures.split))
        if chat.live is not None:
            words.append(f"mean {figures.mean:.1f}")
        if figures.first_token_s is not None:
            words.append(f"first {figures.first_token_s:.2f} s")
    return words


def _context_used(chat: Chat) -> int:
    if chat.figures is None:  # of another run, or another branch
        last = chat.conversation.last("assistant")
        timings = last.timings if last is not None else {}
        return sum(int(timings.get(name, 0)) for name in ("cache_n", "prompt_n", "predicted_n"))
    if chat.live is not None and chat.live.is_reading:
        return chat.live.prompt_total
    return chat.figures.depth


def joined_to_fit(words: Sequence[str], width: int, separator: str) -> str:
    """As many as the width holds, in order."""
    shown = ""
    for word in words:
        longer = f"{shown}{separator}{word}" if shown else word
        if len(longer) > width:
            break
        shown = longer
    return visible(shown)
