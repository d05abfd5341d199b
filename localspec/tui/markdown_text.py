"""Markdown as one widget: an answer of any length costs the layout no more than a line.

A widget for every paragraph and table cell, as Textual's own Markdown has, makes each keystroke
wait for a thousand of them in a long chat. Here rich renders a piece once for each width, and what
the model wrote stays literal: no HTML, no links that could be opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme
from textual.content import Content
from textual.geometry import Size
from textual.selection import Selection
from textual.widget import Widget

from localspec.visible import visible

__all__ = ["MarkdownText", "Piece", "Pieces", "markdown_texts", "rendered"]

_PIECE = 700  # characters from which a piece ends at the next place where it may


class MarkdownText(Widget):
    """A piece of Markdown, drawn for the width that it has."""

    DEFAULT_CSS = """
    MarkdownText { height: auto; margin-bottom: 1; }
    MarkdownText.-goes-on { margin-top: -1; }
    """

    def __init__(self, piece: Piece) -> None:
        super().__init__(classes="-goes-on" if piece.goes_on else "")
        self._text = piece.text

    def update(self, piece: Piece) -> None:
        """Show this."""
        if piece.text == self._text:
            return
        width = self.content_size.width
        before = self.get_content_height(self.size, self.size, width)
        self._text = piece.text
        self.set_class(piece.goes_on, "-goes-on")
        after = self.get_content_height(self.size, self.size, width)
        self.refresh(layout=after != before)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Lines at this width."""
        return self._drawn(width).plain.count("\n") + 1

    def render(self) -> Content:
        """The lines, wrapped already."""
        return self._drawn(self.content_size.width)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, without the blanks that fill the lines of code."""
        text = selection.extract(self.render().plain)
        return "\n".join(line.rstrip() for line in text.split("\n")), "\n"

    def _drawn(self, width: int) -> Content:
        theme = self.app.current_theme
        look = "ansi" if theme.name.startswith("ansi") else "dark" if theme.dark else "light"
        return rendered(self._text, max(8, width), look)


@dataclass(frozen=True, slots=True)
class Piece:
    """goes_on: it continues the code block of the piece before it."""

    text: str
    goes_on: bool = False


class Pieces:
    """Cuts a growing text where Markdown may be cut; what was cut off never changes again.

    A code block that is long is cut between its lines, and both parts have a fence.
    """

    def __init__(self) -> None:
        self.done: list[Piece] = []
        self._n_read = 0
        self._fence = ""  # the line that opens the code block again

    def push(self, text: str) -> Piece:
        """Take the whole text as it is now; the piece that still grows. `done` has the others."""
        while True:
            grown = Piece(self._fence + text[self._n_read :], bool(self._fence))
            found = _cut(grown.text) if len(grown.text) > _PIECE else None
            if found is None:
                return grown
            n, fence, close = found
            self.done.append(Piece(grown.text[:n] + close, grown.goes_on))
            self._n_read += n - len(self._fence)
            self._fence = fence


def _cut(text: str) -> tuple[int, str, str] | None:
    """Where the text may end, the fence that opens what follows, and the one that closes this.

    None when there is no such place yet.
    """
    at = 0
    opened = mark = ""
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            return None  # may still grow
        if at >= _PIECE:
            if opened:
                return at, opened, f"{mark}\n"
            if line[:1].isalpha() and text[:at].endswith("\n\n"):
                return at, "", ""
        at += len(line)
        stripped = line.strip()
        if not opened and stripped[:3] in ("```", "~~~"):
            mark = stripped[: len(stripped) - len(stripped.lstrip(stripped[0]))]
            opened = f"{line.rstrip()}\n"
        elif opened and stripped.startswith(mark) and not stripped.strip(mark[0]):
            opened = ""
    return None


def markdown_texts(text: str) -> list[MarkdownText]:
    """A whole text as widgets."""
    pieces = Pieces()
    last = pieces.push(text)
    return [MarkdownText(piece) for piece in [*pieces.done, last]]


@lru_cache(maxsize=512)
def rendered(text: str, width: int, look: str) -> Content:
    """Markdown as lines of styled literal text. look: dark, light, or ansi (terminal's colours)."""
    console = Console(
        width=width,
        theme=_THEMES[look],
        color_system="truecolor",
        force_terminal=True,
        legacy_windows=False,
        emoji=False,
        highlight=False,
    )
    lines = console.render_lines(_Literal(visible(text), look), pad=False)
    joined = Text()
    for i, line in enumerate(_without_blank_ends(lines)):
        if i:
            joined.append("\n")
        for segment in line:
            joined.append(segment.text, segment.style)
    return Content.from_rich_text(joined, console)


def _without_blank_ends(lines: list[list[Segment]]) -> list[list[Segment]]:
    full = [i for i, line in enumerate(lines) if "".join(s.text for s in line).strip()]
    return lines[full[0] : full[-1] + 1] if full else []


class _Heading(Heading):
    """On the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        yield text


class _CodeBlock(CodeBlock):
    """From the first column, so that a selection holds the code and nothing else."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(str(self.text).rstrip("\n"), self.lexer_name, theme=self.theme, word_wrap=True)


class _Literal(Markdown):
    """Markdown in which tags are text."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }

    def __init__(self, text: str, look: str) -> None:
        super().__init__("", code_theme=_CODE_THEMES[look], hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.markup = text
        self.parsed = parser.parse(text)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"  # a poem keeps its lines, as a terminal shows them


_CODE_THEMES = {"dark": "github-dark", "light": "friendly", "ansi": "ansi_dark"}


def _theme(code: str, heading: str, quiet: str) -> Theme:
    return Theme(
        {
            **{f"markdown.h{n}": Style.parse(f"bold {heading}") for n in range(1, 7)},
            "markdown.h1": Style.parse(f"bold underline {heading}"),
            "markdown.code": Style.parse(code),
            "markdown.block_quote": Style.parse(f"italic {quiet}"),
            "markdown.item.bullet": Style.parse(f"bold {heading}"),
            "markdown.item.number": Style.parse(heading),
            "markdown.hr": Style.parse(quiet),
            "markdown.link": Style.parse(f"underline {heading}"),
            "markdown.link_url": Style.parse(f"underline {quiet}"),
            "markdown.table.border": Style.parse(quiet),
            "markdown.table.header": Style.parse(f"bold {heading}"),
        }
    )


_THEMES = {
    "dark": _theme("#e6b673", "#78b4f0", "#9a9a9a"),
    "light": _theme("#8a4b08", "#0b57a4", "#5f5f5f"),
    "ansi": _theme("yellow", "cyan", "bright_black"),
}
