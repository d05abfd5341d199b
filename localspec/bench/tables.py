"""What a report is made of: sections and tables, as Markdown, HTML, or lines for a terminal."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from unicodedata import east_asian_width

from localspec.bench.plan import NO_DRAFT, PLAIN
from localspec.bench.sweep_results import Board

__all__ = [
    "LOSSY",
    "MISSING",
    "Section",
    "Table",
    "as_html",
    "as_markdown",
    "chart_lines",
    "common_words",
    "short_drafts",
    "short_names",
    "short_targets",
    "shortened",
    "table_lines",
]

MISSING = "–"
LOSSY = " †"  # behind a name: made from a quantised source


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first n_names columns are names, the others numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_names: int = 1


@dataclass(frozen=True, slots=True)
class Section:
    """plot: the stem of a file in plots/ that belongs here, None without one."""

    title: str
    paragraphs: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    table: Table | None = None
    plot: str | None = None
    plot_words: str = ""


_CODE = re.compile(r"`([^`]*)`")

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: auto; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; -webkit-overflow-scrolling: touch; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
         white-space: nowrap; }
th.name, td.name { text-align: left; } tbody tr:nth-child(even) { background: var(--soft); }
td.words { white-space: normal; min-width: 16rem; text-align: left; }
img { max-width: 100%; height: auto; background: #fff; border-radius: .4rem; }
code { background: var(--soft); padding: .1rem .3rem; border-radius: .2rem;
       overflow-wrap: anywhere; }
"""


def as_markdown(title: str, sections: Sequence[Section], plots: Mapping[str, Path]) -> str:
    """plots: the images that exist, by stem, relative to where the text will stand."""
    lines = [f"# {_plain(title)}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for paragraph in section.paragraphs:
            lines += [_plain(paragraph), ""]
        if section.points:
            lines += [*(f"- {_plain(point)}" for point in section.points), ""]
        if section.plot is not None and section.plot in plots:
            lines += [f"![{section.plot_words}]({plots[section.plot].as_posix()})", ""]
        if section.table is not None and section.table.rows:
            lines += [*_markdown_table(section.table), ""]
    return "\n".join(lines).rstrip() + "\n"


def as_html(title: str, sections: Sequence[Section], plots: Mapping[str, bytes]) -> str:
    """plots: PNG bytes by stem; they are put into the page."""
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
    ]
    for section in sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        parts += [f"<p>{_inline(paragraph)}</p>" for paragraph in section.paragraphs]
        if section.points:
            points = "".join(f"<li>{_inline(point)}</li>" for point in section.points)
            parts.append(f"<ul>{points}</ul>")
        if section.plot is not None and section.plot in plots:
            data = base64.b64encode(plots[section.plot]).decode()
            words = html.escape(section.plot_words)
            parts.append(f'<p><img alt="{words}" src="data:image/png;base64,{data}"></p>')
        if section.table is not None and section.table.rows:
            parts.append(_html_table(section.table))
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _markdown_table(table: Table) -> list[str]:
    marks = ["---" if i < table.n_names else "--:" for i in range(len(table.header))]
    rows = [table.header, tuple(marks), *table.rows]
    return ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]


def _html_table(table: Table) -> str:
    def cell(tag: str, i: int, text: str) -> str:
        kind = "name" if i < table.n_names else ""
        if len(text) > 60:
            kind = "words"
        return f'<{tag} class="{kind}">{html.escape(text)}</{tag}>'

    head = "".join(cell("th", i, text) for i, text in enumerate(table.header))
    body = "".join(
        "<tr>" + "".join(cell("td", i, text) for i, text in enumerate(row)) + "</tr>\n"
        for row in table.rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", html.escape(text, quote=False))


def _plain(text: str) -> str:
    """Text outside code marks with what Markdown would take for markup escaped."""
    parts = re.split(r"(`[^`]*`)", text.replace("\n", " "))
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _cell(text: str) -> str:
    return text if text in ("---", "--:") else _escaped(text.replace("\n", " "))


def _escaped(text: str) -> str:
    """An underscore within a word is none of Markdown's."""
    return re.sub(r"([\\*<>\[\]|`]|(?<!\w)_|_(?!\w))", r"\\\1", text)


_JOINTS = " -_./"
_LEAST = 6  # characters that are worth leaving out


def short_targets(board: Board) -> dict[str, str]:
    """The short name of each target."""
    return short_names(board.targets)


def short_drafts(board: Board) -> dict[str, str]:
    """The short name of each draft; `none` keeps its own."""
    return short_names(label for label in board.drafts if label != NO_DRAFT)


def short_names(labels: Iterable[str]) -> dict[str, str]:
    """Each label after the words that all begin with; unchanged where that leaves nothing."""
    known = tuple(labels)
    n = _n_common(known)
    return {label: label[n:].lstrip(_JOINTS) for label in known}


def shortened(board: Board, table: Table) -> Table:
    """Without what the names of all targets, or of all drafts, begin with."""
    targets, drafts = short_targets(board), short_drafts(board)
    names = {"target": targets, "draft": drafts, "model": drafts | targets, "against": targets}
    columns = [names.get(title, {}) for title in table.header]
    n = table.n_names
    header = (
        *table.header[:n],
        *(drafts.get(title, title) for title in table.header[n:]),
    )
    rows = (
        tuple(_short_cell(cell, known) for cell, known in zip(row, columns, strict=True))
        for row in table.rows
    )
    return replace(table, header=header, rows=tuple(rows))


def _short_cell(cell: str, known: Mapping[str, str]) -> str:
    label, mark, _ = cell.partition(LOSSY)
    return known.get(label, label) + mark


def common_words(short: Mapping[str, str]) -> str | None:
    """What was left out of the labels, None when nothing was."""
    for label, rest in short.items():
        if label != rest:
            return label[: len(label) - len(rest)].rstrip(_JOINTS)
    return None


def _n_common(labels: tuple[str, ...]) -> int:
    if len(labels) < 2:
        return 0
    columns = zip(*labels, strict=False)
    n = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, columns))
    while n and not all(n == len(label) or _is_joint(label, n) for label in labels):
        n -= 1
    whole = any(not label[n:].lstrip(_JOINTS) for label in labels)
    return 0 if n < _LEAST or whole else n


def _is_joint(label: str, at: int) -> bool:
    return label[at] in _JOINTS or label[at - 1] in _JOINTS


_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MOST_LABEL = 34


def table_lines(table: Table, width: int) -> list[str]:
    """Aligned columns; names are cut in their middle, and last columns left out, to fit."""
    n = len(table.header)
    rows = [
        [_cut(text, _MOST_LABEL) if i < table.n_names else text for i, text in enumerate(row)]
        for row in (table.header, *table.rows)
    ]
    widths = [max(_width(row[i]) for row in rows) for i in range(n)]
    while n > table.n_names + 1 and sum(widths[:n]) + 2 * (n - 1) > width:
        n -= 1
    found = []
    for row in rows:
        cells = [
            row[i] + " " * (widths[i] - _width(row[i]))
            if i < table.n_names
            else " " * (widths[i] - _width(row[i])) + row[i]
            for i in range(n)
        ]
        found.append("  ".join(cells).rstrip())
    return found


def chart_lines(board: Board, width: int) -> list[str]:
    """Tokens/s (Board.speed) of each target, plain and by the fastest setting of each pair."""
    bars: list[tuple[str, float]] = []
    targets, drafts = short_targets(board), short_drafts(board)
    for target in board.targets:
        plain = board.plain_ts.get(target)
        if plain is not None:
            bars.append((f"{_cut(targets[target], _MOST_LABEL)}, plain", plain.median))
        for draft in board.drafts:
            found = [
                (speed.median, c.setting)
                for c in board.of(target, draft)
                if c.setting != PLAIN and (speed := board.speed(c))
            ]
            if found:
                value, setting = max(found)
                name = _cut(drafts[draft], _MOST_LABEL) if draft != NO_DRAFT else "no draft"
                bars.append((f"  + {name}, {setting}", value))
    if not bars:
        return []
    label = max(_width(name) for name, _ in bars)
    most = max(value for _, value in bars)
    room = max(8, min(50, width - label - 10))
    return [
        f"{name}{' ' * (label - _width(name))} {_bar(value / most * room)} {value:.1f}"
        for name, value in bars
    ]


def _bar(length: float) -> str:
    whole = int(length)
    part = _EIGHTHS[int((length - whole) * 8)]
    return "█" * whole + (part if part != " " else "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 10]}…{text[-9:]}"


def _width(text: str) -> int:
    return sum(2 if east_asian_width(c) in "WF" else 1 for c in text)
