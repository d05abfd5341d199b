"""Resolving and loading models for a command, with progress on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.models.mirror import Progress
from localspec.models.references import pair_draft, resolve

if TYPE_CHECKING:
    from localspec.session.session import Session

__all__ = ["fetch", "load_with_progress", "prepare", "progress_bars"]


@contextlib.contextmanager
def progress_bars() -> Iterator[Progress | None]:
    """A callback that draws download bars on stderr; None when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import (
        Progress as Bars,
    )

    columns = (
        TextColumn("{task.fields[label]}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def advance(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task("", total=total, label=label)
            bars.update(tasks[label], completed=done, total=total)

        yield advance


def fetch(reference: str, role: str) -> Path:
    """Resolve a reference, telling on stderr what happens."""
    if not sys.stderr.isatty():
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
    with progress_bars() as bars:
        return resolve(
            reference,
            role=role,
            on_progress=bars,
            on_note=lambda note: click.echo(f"localspec: {note}", err=True),
        )


def load_with_progress(target: str, draft: str | None, options: dict[str, Any]) -> Session:
    """As localspec.load, with the downloads shown."""
    from localspec.session.session import load

    wanted = pair_draft(target) if draft == "auto" else draft
    target_path = fetch(target, "target")
    draft_path = fetch(wanted, "draft") if wanted is not None else None
    return load(target_path, draft_path, **options)


def prepare(session: Session, *, drafting: bool) -> None:
    """Measure what the first answer would need, and say so while it takes time."""
    if session.exact:
        session.exact_sizes(
            lambda depth: click.echo(
                f"localspec: exact mode: comparing batch sizes at depth {depth:,} …", err=True
            )
        )
    if drafting and session.can_draft:
        _ = session.costs
