"""Tables of a report, the short names in them, and both as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from rich.cells import cell_len

from localspec.bench.plan import NO_DRAFT, PLAIN
from localspec.bench.sweep_results import SweepResults

__all__ = [
    "LOSSY",
    "MISSING",
    "Table",
    "chart_lines",
    "common_words",
    "cut_middle",
    "short_drafts",
    "short_names",
    "short_targets",
    "shortened",
    "shown",
    "table_lines",
]

MISSING = "–"
LOSSY = " †"  # behind a name: made from a quantised source
_EIGHTHS: tuple[str, ...] = ("", *"▏▎▍▌▋▊▉")
_JOINTS = " -_./"
_FEWEST_LEFT_OUT = 6  # characters that are worth leaving out
_LONGEST_NAME = 34


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first n_names columns are names, the others numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_names: int = 1


def shown(value: float | None, spec: str, unit: str = "") -> str:
    """A number by its format, an en dash for one that was not measured."""
    return MISSING if value is None else f"{value:{spec}}{unit}"


def table_lines(table: Table, width: int) -> list[str]:
    """Aligned columns; names are cut in their middle, and last columns left out, to fit."""
    n = len(table.header)
    rows = [
        [
            cut_middle(text, _LONGEST_NAME) if i < table.n_names else text
            for i, text in enumerate(row)
        ]
        for row in (table.header, *table.rows)
    ]
    widths = [max(cell_len(row[i]) for row in rows) for i in range(n)]
    while n > table.n_names + 1 and sum(widths[:n]) + 2 * (n - 1) > width:
        n -= 1
    found = []
    for row in rows:
        cells = [
            row[i] + " " * (widths[i] - cell_len(row[i]))
            if i < table.n_names
            else " " * (widths[i] - cell_len(row[i])) + row[i]
            for i in range(n)
        ]
        found.append("  ".join(cells).rstrip())
    return found


def chart_lines(sweep: SweepResults, width: int) -> list[str]:
    """Bars of tokens/s: each target plain, and by the fastest setting of each of its pairs."""
    bars: list[tuple[str, float]] = []
    targets, drafts = short_targets(sweep), short_drafts(sweep)
    for target in sweep.targets:
        plain = sweep.plain_ts.get(target)
        if plain is not None:
            bars.append((f"{cut_middle(targets[target], _LONGEST_NAME)}, plain", plain.median))
        for draft in sweep.drafts:
            found = [
                (speed.median, c.setting)
                for c in sweep.of_pair(target, draft)
                if c.setting != PLAIN and (speed := sweep.speed(c))
            ]
            if found:
                value, setting = max(found)
                name = cut_middle(drafts[draft], _LONGEST_NAME) if draft != NO_DRAFT else "no draft"
                bars.append((f"  + {name}, {setting}", value))
    if not bars:
        return []
    label = max(cell_len(name) for name, _ in bars)
    most = max(value for _, value in bars)
    room = max(8, min(50, width - label - 10))
    return [
        f"{name}{' ' * (label - cell_len(name))} {_bar(value / most * room)} {value:.1f}"
        for name, value in bars
    ]


def _bar(length: float) -> str:
    whole = int(length)
    return "█" * whole + _EIGHTHS[int((length - whole) * 8)]


def cut_middle(text: str, most: int) -> str:
    """The head of a name says the size, its end the quant: what is between them goes."""
    return text if len(text) <= most else f"{text[: most - 10]}…{text[-9:]}"


def short_targets(sweep: SweepResults) -> dict[str, str]:
    """The short name of each target."""
    return short_names(sweep.targets)


def short_drafts(sweep: SweepResults) -> dict[str, str]:
    """The short name of each draft; `none` keeps its own."""
    return short_names(label for label in sweep.drafts if label != NO_DRAFT)


def short_names(labels: Iterable[str]) -> dict[str, str]:
    """Each label after the words that all begin with; unchanged where that leaves nothing."""
    known = tuple(labels)
    n = _n_common(known)
    return {label: label[n:].lstrip(_JOINTS) for label in known}


def shortened(sweep: SweepResults, table: Table) -> Table:
    """Without what the names of all targets, or of all drafts, begin with."""
    targets, drafts = short_targets(sweep), short_drafts(sweep)
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
    return 0 if n < _FEWEST_LEFT_OUT or whole else n


def _is_joint(label: str, at: int) -> bool:
    return label[at] in _JOINTS or label[at - 1] in _JOINTS
