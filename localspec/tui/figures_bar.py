"""The figures under the conversation: small, true, and no more than fit."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Sparkline, Static

from localspec.chat.chat import Chat
from localspec.visible import visible

__all__ = ["FiguresBar", "context_words", "figure_words"]

_SPARKLINE_FROM = 100  # columns


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
        words = fitting(figure_words(chat), width)
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
            words.append(f"×{figures.speed_up:.2f} est.")
        if figures.acceptance is not None:
            words.append(f"acc {figures.acceptance:.0%}")
    words.append(context_words(chat))
    if figures is not None and figures.n_passes:
        words.append(f"K {figures.n_draft}")
        words.append(f"{figures.tokens_per_pass:.2f} tok/pass")
        words.append("draft {:.0%} verify {:.0%} other {:.0%}".format(*figures.split))
        if chat.live is not None:
            words.append(f"mean {figures.mean:.1f}")
        if figures.first_token_s is not None:
            words.append(f"first {figures.first_token_s:.2f} s")
    return [word for word in words if word]


def context_words(chat: Chat) -> str:
    """How full the context is."""
    if chat.talker is None:
        return ""
    if chat.figures is None:  # of another run, or another branch
        last = chat.conversation.last("assistant")
        timings = last.timings if last is not None else {}
        used = sum(int(timings.get(name, 0)) for name in ("cache_n", "prompt_n", "predicted_n"))
    elif chat.live is not None and chat.live.is_reading:
        used = chat.live.prompt_total
    else:
        used = chat.figures.depth
    return f"ctx {used:,}/{chat.talker.n_ctx:,}"


def fitting(words: list[str], width: int) -> str:
    """As many as the width holds, in order."""
    shown = ""
    for word in words:
        longer = f"{shown} · {word}" if shown else word
        if len(longer) > width:
            break
        shown = longer
    return visible(shown)
