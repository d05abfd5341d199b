"""What a sweep shows while it runs: a live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any, Protocol

import click

from localspec.bench.levels import LevelBegun
from localspec.bench.plan import PLAIN
from localspec.bench.sweep import SweepProgress
from localspec.visible import visible

__all__ = ["Display", "duration", "open_display", "show_level_progress"]

_HEARTBEAT_S = 60.0


class Display(Protocol):
    """Where a sweep's progress goes."""

    def say(self, words: str) -> None:
        """A line that stays."""

    def doing(self, words: str) -> None:
        """What goes on now, when no pair is measured."""

    def show(self, progress: SweepProgress) -> None:
        """A step of the sweep."""


@contextlib.contextmanager
def open_display() -> Iterator[Display]:
    """The display for this stderr."""
    if not sys.stderr.isatty():
        yield PlainLines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.table import Column

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # words give way to numbers
    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[words]}", markup=False, table_column=rest),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, expand=True) as bars:
        yield LiveLine(bars)


class PlainLines:
    """A line when a pair begins and ends, and one a minute between."""

    def __init__(self) -> None:
        self._last = monotonic()

    def say(self, words: str) -> None:
        """To stderr."""
        click.echo(f"localspec: {visible(words)}", err=True)

    def doing(self, words: str) -> None:
        """A line too."""
        self.say(words)

    def show(self, progress: SweepProgress) -> None:
        """Blocks are told once a minute."""
        if progress.kind == "doing":
            return
        if progress.kind == "block":
            if monotonic() - self._last < _HEARTBEAT_S:
                return
            self.say(f"  {progress.n_runs} of {progress.n_runs_total} answers, {times(progress)}")
        else:
            self.say(line(progress))
        self._last = monotonic()


class LiveLine:
    """One line that changes, and a line that stays for each pair."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=None, words="", left="")

    def say(self, words: str) -> None:
        """Above the live line."""
        from rich.text import Text

        self._bars.console.print(Text(visible(words)))

    def doing(self, words: str) -> None:
        """In the live line."""
        self._bars.update(self._task, words=visible(words), left="")

    def show(self, progress: SweepProgress) -> None:
        """Pairs that ended stay; the rest replaces itself."""
        what = progress.what
        if progress.kind in ("done", "failed"):
            self.say(line(progress))
            what = progress.kind
        words = f"{progress.number}/{progress.n_pairs} {progress.pair}: {what}"
        self._bars.update(
            self._task,
            total=progress.n_runs_total,
            completed=progress.n_runs,
            words=visible(words),
            left="" if progress.left_s is None else f"about {duration(progress.left_s)} left",
        )


def line(progress: SweepProgress) -> str:
    """What is said when a pair begins or ends."""
    head = f"{progress.number}/{progress.n_pairs} {progress.pair}"
    if progress.kind == "failed":
        return f"{head}: not measured: {progress.what}"
    if progress.kind != "done":
        return f"{head}: {progress.what} ({times(progress)})"
    parts = []
    for c in progress.configurations:
        if c.error is not None:
            parts.append(f"{c.setting} failed: {c.error}")
        elif c.setting == PLAIN:
            parts.append(f"plain {c.median_ts:.1f} tokens/s")
        elif c.speed_up is None:  # plain decoding failed where this did not
            parts.append(f"{c.setting} {c.median_ts:.1f} tokens/s")
        else:
            parts.append(f"{c.setting} ×{c.speed_up:.2f}")
    return f"{head}: {', '.join(parts)} ({times(progress)})"


def times(progress: SweepProgress) -> str:
    """Elapsed, and left by the pace so far."""
    left = "" if progress.left_s is None else f", about {duration(progress.left_s)} left"
    return f"{duration(progress.elapsed_s)} so far{left}"


def duration(seconds: float) -> str:
    """Such as 40 s, 12 min, 1 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


@contextlib.contextmanager
def show_level_progress(level: LevelBegun) -> Iterator[None]:
    """Tell that a level is made; on a terminal also how much of it is there."""
    click.echo(f"localspec: making {level.type_name} of {visible(level.source.name)} …", err=True)
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(level, done), daemon=True)
    if sys.stderr.isatty():
        watcher.start()
    try:
        yield
    finally:
        done.set()
        if watcher.is_alive():
            watcher.join()


def _watch(level: LevelBegun, done: threading.Event) -> None:
    while not done.wait(0.5):
        with contextlib.suppress(OSError):
            written = level.growing.stat().st_size / 1e9
            click.echo(f"\r{written:.2f} GB written", err=True, nl=False)
    click.echo("\r\x1b[K", err=True, nl=False)
