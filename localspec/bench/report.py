"""report.md, report.html, results.csv and plots of a folder, from its rows alone."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from localspec.bench.plots import draw_plots
from localspec.bench.recommend import Limits
from localspec.bench.report_sections import Section, report_sections
from localspec.bench.sweep_results import SweepResults
from localspec.bench.tables import Table
from localspec.errors import DiskSpaceError

__all__ = ["write_report"]

TITLE = "Which quants to run: a localspec sweep"
_CODE = re.compile(r"(`[^`]*`)")


def write_report(sweep: SweepResults, folder: Path, limits: Limits | None = None) -> list[str]:
    """Write all of it; returns what a person should know, such as why there are no plots.

    Each file is replaced whole. Raises DiskSpaceError: the rows are not touched by it.
    """
    notes = []
    try:
        plots: dict[str, Path] = {}
        try:
            plots = draw_plots(sweep, folder / "plots")
        except ImportError as error:
            notes.append(
                f"no plots were drawn: matplotlib cannot be imported ({error}). Install it "
                f"(`pip install matplotlib`) and run `localspec bench report {folder}`"
            )
        found = report_sections(sweep, limits)
        relative = {stem: path.relative_to(folder) for stem, path in plots.items()}
        pictures = {stem: path.read_bytes() for stem, path in plots.items()}
        _replace(folder / "report.md", _markdown(found, relative))
        _replace(folder / "report.html", _html(found, pictures))
        _replace(folder / "results.csv", _csv(sweep))
    except OSError as error:
        raise DiskSpaceError(
            f"the report could not be written to {folder}: {error.strerror or error}. The rows in "
            f"results.jsonl are whole; run `localspec bench report {folder}` when there is room"
        ) from None
    return notes


def _markdown(sections: Sequence[Section], plots: Mapping[str, Path]) -> str:
    """plots: the images that exist, by stem, relative to where the text will stand."""
    lines = [f"# {_plain(TITLE)}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for paragraph in section.paragraphs:
            lines += [_plain(paragraph), ""]
        if section.points:
            lines += [*(f"- {_plain(point)}" for point in section.points), ""]
        if section.plot in plots:
            lines += [f"![{section.plot_words}]({plots[section.plot].as_posix()})", ""]
        if section.table is not None and section.table.rows:
            lines += [*_markdown_table(section.table), ""]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_table(table: Table) -> list[str]:
    marks = ["---" if i < table.n_names else "--:" for i in range(len(table.header))]
    escaped = [[_escaped(cell.replace("\n", " ")) for cell in row] for row in table.rows]
    rows = [[_escaped(title) for title in table.header], marks, *escaped]
    return [f"| {' | '.join(row)} |" for row in rows]


def _plain(text: str) -> str:
    """Text outside code marks with what Markdown would take for markup escaped."""
    parts = _CODE.split(text.replace("\n", " "))
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    """An underscore within a word is none of Markdown's."""
    return re.sub(r"([\\*<>\[\]|`]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def _html(sections: Sequence[Section], plots: Mapping[str, bytes]) -> str:
    """plots: PNG bytes by stem; they are put into the page."""
    page = resources.files("localspec.bench").joinpath("report.html.jinja").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["code_marks"] = _code_marks
    pictures = {stem: base64.b64encode(png).decode() for stem, png in plots.items()}
    return environment.from_string(page).render(title=TITLE, sections=sections, plots=pictures)


def _code_marks(text: str) -> Markup:
    return Markup(_CODE.sub(lambda mark: f"<code>{mark[0][1:-1]}</code>", str(escape(text))))


def _csv(sweep: SweepResults) -> str:
    """One line a configuration; lists and objects as JSON, quality and Σ min(p, q) beside it."""
    out = io.StringIO()
    extra = ("kl_mean", "perplexity", "top1_agreement", "quality_reference")
    rows: list[dict[str, Any]] = []
    for c in sweep.configurations:
        quality = sweep.qualities.get(c.target)
        row = {name: _flat(value) for name, value in dataclasses.asdict(c).items()}
        row["kl_mean"] = quality.kl_mean if quality else None
        row["perplexity"] = quality.perplexity if quality else None
        row["top1_agreement"] = quality.top1_agreement if quality else None
        row["quality_reference"] = quality.reference if quality else None
        row["sum_min"] = sweep.sum_min(c.target, c.draft)
        rows.append(row)
    names = [f.name for f in dataclasses.fields(sweep.configurations[0])] if rows else []
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
