"""Tables and a bar chart as plain lines for a terminal of any width. No colour, no escape codes."""

from __future__ import annotations

from unicodedata import east_asian_width

from localspec.bench.plan import NO_DRAFT, PLAIN
from localspec.bench.short_names import short_drafts, short_targets
from localspec.bench.sweep_results import Board
from localspec.bench.tables import Table

__all__ = ["chart_lines", "table_lines"]

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
