"""Labels without what all begin with: of eight quants of one model the quants are enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile

from localspec.bench.plan import NO_DRAFT
from localspec.bench.sweep_results import Board
from localspec.bench.tables import LOSSY, Table

__all__ = ["common_words", "short_drafts", "short_names", "short_targets", "shortened"]

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
