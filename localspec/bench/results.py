"""results.jsonl: rows that were measured, appended and on the disk before the next is measured.

Knows rows as dicts with a `type`, and nothing of how they are made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from localspec.errors import InvalidOptionError
from localspec.jsonl_file import JsonlFile, Row, read_whole_rows

__all__ = ["Results", "read_rows"]

FILE_NAME = "results.jsonl"
_ROWS_ARE = "no row of a sweep"


class Results(JsonlFile):
    """The rows of one folder, open for appending. Use it as a context manager.

    Raises BusyError when another sweep writes here, and what JsonlFile raises.
    """

    writer = "another sweep"
    rows_are = _ROWS_ARE

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE_NAME, folder / ".lock")
        self.folder = folder

    def drop(self, unwanted: Callable[[Row], bool]) -> int:
        """Remove rows, so that they can be measured again; returns how many."""
        kept = [row for row in self.rows if not unwanted(row)]
        n = len(self.rows) - len(kept)
        if n:
            self.replace(kept)
        return n

    def kept_words(self) -> str:
        """The runs that stand in the file."""
        return f"{sum(row.get('type') == 'run' for row in self.rows)} runs"


def read_rows(folder: Path) -> list[Row]:
    """The rows of a finished or unfinished sweep. Raises InvalidOptionError when there are none."""
    path = folder / FILE_NAME
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidOptionError(
            f"{folder} holds no sweep: {path.name} cannot be read ({error.strerror}). "
            "`localspec bench --out DIR` makes one"
        ) from None
    rows = list(read_whole_rows(raw, path, _ROWS_ARE))
    if not rows:
        raise InvalidOptionError(f"{path} is empty: the sweep measured nothing yet")
    return rows
