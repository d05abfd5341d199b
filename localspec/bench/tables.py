"""What a report is made of: sections, and tables of text."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LOSSY", "MISSING", "Section", "Table"]

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
