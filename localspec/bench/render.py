"""Sections as Markdown and as one HTML page that needs no other file.

Labels and errors come from files and models: they are text, never markup.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from localspec.bench.tables import Section, Table

__all__ = ["as_html", "as_markdown"]

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
