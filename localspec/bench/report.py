"""report.md, report.html, results.csv and plots of a folder, from its rows alone."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any

from localspec.bench.plots import draw_plots
from localspec.bench.recommend import Limits
from localspec.bench.sections import sections
from localspec.bench.sweep_results import Board
from localspec.bench.tables import as_html, as_markdown
from localspec.errors import DiskSpaceError

__all__ = ["write_report"]

TITLE = "Which quants to run: a localspec sweep"


def write_report(board: Board, folder: Path, limits: Limits | None = None) -> list[str]:
    """Write all of it; returns what a person should know, such as why there are no plots.

    Each file is replaced whole. Raises DiskSpaceError: the rows are not touched by it.
    """
    notes = []
    try:
        plots: dict[str, Path] = {}
        try:
            plots = draw_plots(board, folder / "plots")
        except ImportError as error:
            notes.append(
                f"no plots were drawn: matplotlib cannot be imported ({error}). Install it "
                f"(`pip install matplotlib`) and run `localspec bench report {folder}`"
            )
        found = sections(board, limits)
        relative = {stem: path.relative_to(folder) for stem, path in plots.items()}
        pictures = {stem: path.read_bytes() for stem, path in plots.items()}
        _replace(folder / "report.md", as_markdown(TITLE, found, relative))
        _replace(folder / "report.html", as_html(TITLE, found, pictures))
        _replace(folder / "results.csv", _csv(board))
    except OSError as error:
        raise DiskSpaceError(
            f"the report could not be written to {folder}: {error.strerror or error}. The rows in "
            f"results.jsonl are whole; run `localspec bench report {folder}` when there is room"
        ) from None
    return notes


def _csv(board: Board) -> str:
    """One line a configuration; lists and objects as JSON, quality and Σ min(p, q) beside it."""
    out = io.StringIO()
    extra = ("kl_mean", "perplexity", "top1_agreement", "quality_reference")
    rows: list[dict[str, Any]] = []
    for c in board.configurations:
        quality = board.qualities.get(c.target)
        row = {name: _flat(value) for name, value in dataclasses.asdict(c).items()}
        row["kl_mean"] = quality.kl_mean if quality else None
        row["perplexity"] = quality.perplexity if quality else None
        row["top1_agreement"] = quality.top1_agreement if quality else None
        row["quality_reference"] = quality.reference if quality else None
        row["sum_min"] = board.sum_min(c.target, c.draft)
        rows.append(row)
    names = [f.name for f in dataclasses.fields(board.configurations[0])] if rows else []
    writer = csv.DictWriter(out, [*names, *extra], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.part")
    try:
        # names of files may hold bytes that are no UTF-8
        partial.write_text(text, "utf-8", errors="backslashreplace", newline="\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
