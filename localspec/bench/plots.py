"""The plots of a report as PNG files: one function for each, over a SweepResults.

matplotlib is imported here, when a plot is drawn, and used without its global state. Labels are
drawn as text: no mathtext in a file name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from localspec.bench.configuration import Configuration
from localspec.bench.plan import NO_DRAFT, PLAIN
from localspec.bench.sweep_results import SweepResults
from localspec.bench.tables import cut_middle, short_drafts, short_targets

__all__ = ["draw_plots", "pareto"]

# Okabe and Ito's palette: told apart by people who are colour-blind
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
_MOST_LINES = 10
_LONGEST_NAME = 30
_SMALL, _DPI = 9, 130  # pictures are narrow, so that a phone shows letters of a fair size


def draw_plots(sweep: SweepResults, folder: Path) -> dict[str, Path]:
    """Draw what the sweep has the numbers for; the files by stem. Raises ImportError, OSError."""
    import matplotlib.figure  # noqa: F401 -- fail before anything is written

    folder.mkdir(parents=True, exist_ok=True)
    drawers: dict[str, Callable[[SweepResults], Any]] = {
        "speed-quality": _speed_quality,
        "speed-up": _speed_up,
        "acceptance": _acceptance,
        "costs": _costs,
        "time": _time,
    }
    drawn = {}
    for stem, draw in drawers.items():
        path = folder / f"{stem}.png"
        figure = draw(sweep)
        if figure is None:
            path.unlink(missing_ok=True)  # of an earlier report
            continue
        with warnings.catch_warnings():  # a box in a label's place needs no line on a terminal
            warnings.filterwarnings("ignore", "Glyph .* missing")
            figure.savefig(path, dpi=_DPI, facecolor="white")
        drawn[stem] = path
    return drawn


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of (cost, gain) for which no other point costs no more and gains more."""
    order = sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1]))
    front: list[int] = []
    best = float("-inf")
    for i in order:
        if points[i][1] > best:
            front.append(i)
            best = points[i][1]
    return front


def _axes(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _speed_quality(sweep: SweepResults) -> Any:
    """The fastest way to run each target against its KL; the front joined."""
    best: dict[str, Configuration] = {}
    for c in sweep.ranked:
        if sweep.kl(c.target) is not None:
            best.setdefault(c.target, c)
    if len(best) < 2:
        return None
    found = list(best.values())
    points = [(sweep.kl(c.target) or 0.0, sweep.ranking_ts(c)) for c in found]
    figure, axes = _axes(6, 4)
    front = pareto(points)
    axes.plot(
        *zip(*(points[i] for i in front), strict=True),
        color="#999999",
        marker="o",
        linewidth=1.5,
        label="Pareto front (filled)",
    )
    for i, (c, (kl, ts)) in enumerate(zip(found, points, strict=True)):
        on_front = i in front
        face = _COLOURS[0] if on_front else "white"
        axes.scatter(kl, ts, s=60, color=face, edgecolor=_COLOURS[0], zorder=3)
        name = _target(sweep, c.target) + (" †" if c.target_from_lossy else "")
        if c.setting != PLAIN:
            name += f"\n{c.setting}, {_draft(sweep, c.draft)}"
        is_right = kl > max(x for x, _ in points) / 2  # names grow towards the middle
        axes.annotate(name, (kl, ts), xytext=(-6 if is_right else 6, 6), fontsize=_SMALL,
                      textcoords="offset points", ha="right" if is_right else "left",
                      parse_math=False)  # fmt: skip
    axes.set_xlabel("mean KL from the reference, nats (0 is the reference)")
    axes.set_ylabel("tokens/s, the fastest setting")
    axes.margins(x=0.2)
    axes.set_ylim(0, 1.15 * max(ts for _, ts in points))  # room for the names
    axes.legend(frameon=False, fontsize=_SMALL)
    return figure


def _speed_up(sweep: SweepResults) -> Any:
    import numpy as np

    targets = [t for t in sweep.targets if any(c.target == t for c in sweep.measured)]
    drafts = sweep.measured_drafts
    values = np.array(
        [[sweep.controller_speed_up(t, d) for t in targets] for d in drafts], np.float64
    )
    if np.isnan(values).all():
        return None
    names = ["no draft: copies" if d == NO_DRAFT else _draft(sweep, d) for d in drafts]
    target_names = [_target(sweep, target) for target in targets]
    width = 1.5 + 0.9 * len(targets) + 0.09 * max(map(len, names))
    figure, axes = _axes(width, 1.4 + 0.5 * len(drafts) + 0.04 * max(map(len, target_names)))
    reach = max(0.1, float(np.nanmax(np.abs(values - 1.0))))
    image = axes.imshow(values, cmap="PuOr_r", vmin=1.0 - reach, vmax=1.0 + reach, aspect="auto")
    for i in range(len(drafts)):
        for j in range(len(targets)):
            text = "–" if np.isnan(values[i, j]) else f"{values[i, j]:.2f}"
            dark = abs(values[i, j] - 1.0) > 0.6 * reach
            axes.text(j, i, text, ha="center", va="center", color="white" if dark else "black")
    axes.set_yticks(range(len(drafts)), names, fontsize=_SMALL, parse_math=False)
    axes.set_xticks(range(len(targets)), target_names, fontsize=_SMALL, rotation=20, ha="right",
                    parse_math=False)  # fmt: skip
    axes.set_xlabel("target")
    axes.set_ylabel("draft")
    figure.colorbar(image, ax=axes, label="times plain")
    return figure


def _acceptance(sweep: SweepResults) -> Any:
    drafting = [c for c in sweep.measured if c.has_draft_model]
    drafting.sort(key=lambda c: c.setting != "auto")  # the controller's come first
    lines = []
    for c in drafting:
        pairs = list(zip(c.accepted_by_position, c.judged_by_position, strict=True))[:16]
        rates = [(k, a / n) for k, (a, n) in enumerate(pairs, 1) if n >= 5]
        lines.append((_setting(sweep, c), rates))
    drawn = _lines(lines, "position in the draft (where five or more were verified)")
    if drawn is None:
        return None
    figure, axes = drawn
    axes.set_ylabel("acceptance rate")
    axes.set_ylim(0, 1.02)
    return figure


def _costs(sweep: SweepResults) -> Any:
    tables: dict[str, dict[str, float]] = {}
    for (target, _), pair in sweep.pairs.items():
        tables.setdefault(target, pair.get("t_ms") or {})
    lines = [
        (_target(sweep, target), sorted((int(n), ms) for n, ms in found.items() if int(n) <= 17))
        for target, found in tables.items()
    ]
    drawn = _lines(lines, "n, tokens of one decode")
    if drawn is None:
        return None
    figure, axes = drawn
    axes.set_ylabel("T(n), milliseconds")
    axes.set_ylim(bottom=0)
    return figure


def _lines(lines: Sequence[tuple[str, Sequence[tuple[int, float]]]], along: str) -> Any:
    """Figure and axes with the first of the named lines that have points; None without any."""
    lines = [(name, points) for name, points in lines if points][:_MOST_LINES]
    if not lines:
        return None
    figure, axes = _axes(6, 3.8)
    for i, (name, points) in enumerate(lines):
        colour, mark = _COLOURS[i % len(_COLOURS)], _MARKS[i % len(_MARKS)]
        axes.plot(*zip(*points, strict=True), color=colour, marker=mark, markersize=4,
                  linewidth=1.4, label=name)  # fmt: skip
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(along)
    for text in axes.legend(frameon=False, fontsize=_SMALL).get_texts():
        text.set_parse_math(False)
    return figure, axes


def _time(sweep: SweepResults) -> Any:
    found = [c for c in sweep.measured if c.draft_share is not None and c.setting != PLAIN]
    if not found:
        return None
    found = found[:24]
    figure, axes = _axes(6.4, 1.4 + 0.28 * len(found))
    left = [0.0] * len(found)
    for i, part in enumerate(("draft", "verify", "other")):
        shares = [float(getattr(c, f"{part}_share")) for c in found]
        axes.barh(range(len(found)), shares, left=left, color=_COLOURS[i], label=part,
                  hatch=("//", "", "..")[i], edgecolor="white")  # fmt: skip
        left = [a + b for a, b in zip(left, shares, strict=True)]
    names = [_setting(sweep, c) for c in found]
    axes.set_yticks(range(len(found)), names, fontsize=_SMALL, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the decoding time")
    axes.legend(
        frameon=False, fontsize=_SMALL, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0)
    )
    return figure


def _setting(sweep: SweepResults, c: Configuration) -> str:
    return f"{_target(sweep, c.target)} + {_draft(sweep, c.draft)}, {c.setting}"


def _target(sweep: SweepResults, label: str) -> str:
    return cut_middle(short_targets(sweep)[label], _LONGEST_NAME)


def _draft(sweep: SweepResults, label: str) -> str:
    if label == NO_DRAFT:
        return "no draft"
    return cut_middle(short_drafts(sweep)[label], _LONGEST_NAME)
