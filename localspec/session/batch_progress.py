"""How far a batch is: a bar on stderr, a function of the caller, or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

__all__ = ["Progress", "progress_bar"]


class Progress:
    """Counts, and tells `show(done, total)`; total None while nobody knows it."""

    def __init__(self, show: Callable[[int, int | None], None], total: int | None) -> None:
        self._show = show
        self._total = total
        self._n_done = 0

    def advance(self) -> None:
        """One more prompt has its answer or its error."""
        self._n_done += 1
        self._show(self._n_done, self._total)


@contextlib.contextmanager
def progress_bar(
    wanted: bool | Callable[[int, int | None], None], total: int | None
) -> Iterator[Progress]:
    """wanted True draws a bar with rich, in a terminal or a notebook; a function is called."""
    if callable(wanted):
        yield Progress(wanted, total)
        return
    if not wanted:
        yield Progress(lambda done, total: None, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("", total=total)
        yield Progress(lambda done, _total: bars.update(task, completed=done), total)
