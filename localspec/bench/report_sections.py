"""The report as sections of text and tables: what Markdown, HTML and the terminal all show.

Pure: results in, text in cells out. What was not measured is an en dash, never a guess.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.bench.configuration import Configuration
from localspec.bench.plan import NO_DRAFT, PLAIN
from localspec.bench.recommend import Limits, recommend
from localspec.bench.sweep_results import SweepResults
from localspec.bench.tables import (
    LOSSY,
    MISSING,
    Table,
    common_words,
    short_drafts,
    short_targets,
    shortened,
    shown,
)

__all__ = ["Section", "report_sections", "speed_table"]

_EXPLANATIONS = (
    "Tokens/s count the answer's tokens by ids over the time of decoding; the prompt is timed "
    "separately. Each answer starts with empty caches and nothing learned, as in `localspec run`.",
    "× plain is the median of ratios, each against plain decoding of the same prompt in the same "
    "repetition, process and minute. Brackets are 95 % bootstrap intervals over prompts and "
    "repetitions (with fewer than five prompts the range of all answers, with fewer than five "
    "answers none); they say nothing about other kinds of prompts.",
    "The acceptance rate is accepted / (accepted + rejected): tokens after a rejected one count "
    "as neither. Tokens per pass include the target's own token; plain decoding has 1.",
    "Memory is the peak of a process that loaded this pair at this context size, or the GPU "
    "memory that loading took.",
    "KL and perplexity compare quants of one model on one text. They do not measure how good the "
    "answers are, and a level made from a quantised file is compared with that file.",
    "Speculative decoding does not change the distribution of the text; greedy text may differ "
    "from plain greedy text at near ties (see `localspec audit`).",
)


@dataclass(frozen=True, slots=True)
class Section:
    """plot: the stem of a file in plots/ that belongs here; plot_words: what it shows."""

    title: str
    paragraphs: Sequence[str] = ()
    points: Sequence[str] = ()
    table: Table | None = None
    plot: str = ""
    plot_words: str = ""


def report_sections(sweep: SweepResults, limits: Limits | None = None) -> tuple[Section, ...]:
    """All of the report, the recommendation first."""
    found = [
        Section("Recommendation", points=recommend(sweep, limits).sentences),
        Section("Conditions", points=_conditions(sweep)),
    ]
    if sweep.measured:
        found += [_speed(sweep), _speed_up(sweep), _categories(sweep), _quality(sweep)]
        found += [_acceptance(sweep), _time(sweep), _costs(sweep), _loads(sweep)]
        found += [_prediction(sweep), *_sampled(sweep)]
    if sweep.failed:
        found.append(_failures(sweep))
    found.append(Section("What the numbers mean, and what not", points=_EXPLANATIONS))
    return tuple(
        replace(section, table=shortened(sweep, section.table)) if section.table else section
        for section in found
    )


def speed_table(sweep: SweepResults) -> Table:
    """Every configuration, the fastest first, with short names; baselines are not repeated."""
    ranked = sorted(_without_repeated_baselines(sweep), key=sweep.ranking_ts, reverse=True)
    columns: dict[str, Callable[[Configuration], str]] = {
        "tokens/s": lambda c: c.tokens_per_s.shown(".1f") if c.tokens_per_s else MISSING,
        "× plain": lambda c: c.times_plain.shown(".2f") if c.times_plain else MISSING,
        "verdict": lambda c: c.verdict,
        "acceptance": lambda c: shown(c.acceptance, ".0%"),
        "tokens/pass": lambda c: shown(c.tokens_per_pass, ".2f"),
        "first token": lambda c: shown(c.ttft_s, ".2f", " s"),
        "prefill": lambda c: shown(c.prompt_per_second, ".0f"),
        "memory": lambda c: _gigabytes(c.memory_bytes, " GB"),
    }
    return shortened(sweep, _settings_table(ranked, columns))


def _without_repeated_baselines(sweep: SweepResults) -> list[Configuration]:
    """Plain decoding once a target: beside each draft it was measured as that pair's baseline."""
    plain = {c.target: c for c in reversed(sweep.measured) if c.setting == PLAIN}
    plain |= {c.target: c for c in sweep.measured if c.setting == PLAIN and not c.has_draft_model}
    return [c for c in sweep.measured if c.setting != PLAIN or plain[c.target] is c]


def _settings_table(
    configurations: Iterable[Configuration], columns: dict[str, Callable[[Configuration], str]]
) -> Table:
    rows = [
        (
            c.target + LOSSY * c.target_from_lossy,
            c.draft + LOSSY * c.draft_from_lossy,
            c.setting,
            *(cell(c) for cell in columns.values()),
        )
        for c in configurations
    ]
    return Table(("target", "draft", "setting", *columns), rows, 3)


def _conditions(sweep: SweepResults) -> list[str]:
    header = sweep.header
    machine, work = header["machine"], header["workload"]
    loads = [c for c in sweep.measured if c.n_threads is not None]
    memory = machine["memory_bytes"]
    categories = dict.fromkeys(category for _, category in header["prompts"])
    points = [
        f"Machine: {machine['cpu_info']}, {machine['n_cpus']} processors"
        + (f", {memory / 1e9:.0f} GB of memory" if memory else "")
        + (f"; GPU: {machine['gpu_info']}" if machine["gpu_info"] else "")
        + f"; {machine['system']}.",
        f"In use: {_listed({c.device for c in loads} - {None}, 'nothing')}; threads "
        f"{_listed({c.n_threads for c in loads})}; power "
        f"{_listed({c.power or 'not stated' for c in loads})}.",
        f"Engine: {machine['engine']}; localspec {machine['localspec']}; Python "
        f"{machine['python']}.",
        f"Prompts: {header['prompts_name']} ({len(header['prompts'])}: {', '.join(categories)}); "
        f"up to {work['n_gen']} tokens an answer, {header['repeat']} repetition"
        f"{'s' if header['repeat'] > 1 else ''}, rest {header['delay_s']:g} s. Sampling: "
        f"{_options(work['answering'])}. Loading: {_options(header['loading'])}.",
    ]
    for what, names in (("targets", short_targets(sweep)), ("drafts", short_drafts(sweep))):
        if words := common_words(names):
            points.append(f"In the tables {words!r} is left out of the names of all {what}.")
    points.append(f"Started {header['test_time']}; {sweep.n_runs} answers measured.")
    if sweep.n_unfinished:
        points.append(
            f"Unfinished: {sweep.n_unfinished} answers of a pair that was not measured to its end "
            "are left out. The same command continues it."
        )
    return points


def _speed(sweep: SweepResults) -> Section:
    words = [
        "Ranked by plain decoding of the target over all its pairs times × plain, which is not "
        "affected when the machine's speed changes between two pairs; tokens/s are as measured."
    ]
    if any(c.target_from_lossy or c.draft_from_lossy for c in sweep.measured):
        words.append(
            "A level made from a quantised source is marked †: its speed is real, its quality is "
            "at most its source's."
        )
    return Section("Speed", words, table=speed_table(sweep))


def _speed_up(sweep: SweepResults) -> Section:
    """Draft × target: the controller's live speed-up."""
    drafts = sweep.measured_drafts
    rows = [
        (t, *(shown(sweep.controller_speed_up(t, draft), ".2f") for draft in drafts))
        for t in sweep.targets
    ]
    header = ("target", *(d if d != NO_DRAFT else "no draft: copies" for d in drafts))
    return Section(
        "Speed-up by draft and target",
        ["Over plain decoding of the same target; the draft length is the controller's."],
        table=Table(header, rows),
        plot="speed-up",
        plot_words="Heat map of the speed-up over plain, draft by target",
    )


def _categories(sweep: SweepResults) -> Section:
    names = dict.fromkeys(category for _, category in sweep.header["prompts"])
    drafting = [c for c in sweep.measured if c.setting != PLAIN]
    columns: dict[str, Callable[[Configuration], str]] = {
        name: lambda c, name=name: shown((c.categories.get(name) or {}).get("speed_up"), ".2f")  # type: ignore[misc]
        for name in names
    }
    return Section(
        "Speed-up by kind of prompt",
        ["Medians over plain; with few prompts of a kind they are single cases."],
        table=_settings_table(drafting, columns),
    )


def _quality(sweep: SweepResults) -> Section:
    if not sweep.qualities:
        return Section("Quality", ["Not measured in this sweep."])
    rows, words = [], []
    for target, q in sweep.qualities.items():
        if q.error is not None:
            words.append(f"{target} could not be read: {q.error}")
            continue
        kl = f"{shown(q.kl_mean, '.4g')} ± {shown(q.kl_error, '.2g')}"
        rows.append(
            (
                target,
                f"{shown(q.perplexity, '.6g')} ± {shown(q.perplexity_error, '.2g')}",
                "reference" if q.reference == target else kl,
                shown(q.top1_agreement, ".1%"),
                q.reference or MISSING,
                f"{q.n_tokens:,}",
            )
        )
    texts = sorted({q.text for q in sweep.qualities.values() if q.text})
    if texts:
        words.insert(0, f"± is one standard error. KL in nats, from the target named under "
                        f"“against”. The text: {'; '.join(texts)}.")  # fmt: skip
    header = ("target", "perplexity", "mean KL", "same top token", "against", "tokens")
    return Section(
        "Quality",
        words,
        table=Table(header, rows),
        plot="speed-quality",
        plot_words="Speed against quality; the Pareto front is marked",
    )


def _acceptance(sweep: SweepResults) -> Section:
    def rate(c: Configuration, i: int) -> str:
        verified = c.judged_by_position[i] if i < len(c.judged_by_position) else 0
        return f"{c.accepted_by_position[i] / verified:.0%}" if verified else MISSING

    def kl(c: Configuration) -> str:
        agreement = sweep.agreements.get((c.target, c.draft))
        return shown(agreement.kl if agreement else None, ".3g")

    drafting = [c for c in sweep.measured if c.judged_by_position]
    n = min(8, max((len(c.judged_by_position) for c in drafting), default=0))
    columns: dict[str, Callable[[Configuration], str]] = {
        **{str(i + 1): lambda c, i=i: rate(c, i) for i in range(n)},  # type: ignore[misc]
        "Σ min(p, q)": lambda c: shown(sweep.sum_min(c.target, c.draft), ".3f"),
        "draft's KL": kl,
    }
    return Section(
        "Acceptance rate by position",
        ["At each position in the draft. Σ min(p, q), at temperature 1, is the chance that a "
         "token drawn from the draft model is accepted."],
        table=_settings_table(drafting, columns),
        plot="acceptance",
        plot_words="Acceptance rate by position in the draft",
    )  # fmt: skip


def _time(sweep: SweepResults) -> Section:
    columns: dict[str, Callable[[Configuration], str]] = {
        "draft": lambda c: shown(c.draft_share, ".0%"),
        "verify": lambda c: shown(c.verify_share, ".0%"),
        "other": lambda c: shown(c.other_share, ".0%"),
        "drafted/round": lambda c: shown(c.n_draft_mean, ".2f"),
        "same text as plain": lambda c: shown(c.same_as_plain, ".0%"),
    }
    return Section(
        "Where the time goes",
        table=_settings_table(_without_repeated_baselines(sweep), columns),
        plot="time",
        plot_words="Share of decoding time: draft, verification, other",
    )


def _costs(sweep: SweepResults) -> Section:
    sizes = ("1", "2", "3", "4", "5", "6", "8", "12", "16")
    rows: dict[tuple[str, str], tuple[str, ...]] = {}
    for (target, draft), pair in sweep.pairs.items():
        for kind, label, table in (("T(n)", target, "t_ms"), ("D(n)", draft, "d_ms")):
            if found := pair.get(table):
                cells = [shown(found.get(n), ".3g") for n in sizes]
                rows.setdefault((kind, label), (kind, label, *cells))
    return Section(
        "Costs of one decode, milliseconds",
        ["T(n): the target decodes n tokens with all rows of logits. D(n): the draft, with the "
         "last row. The best of three with empty caches, before anything was drafted."],
        table=Table(("", "model", *sizes), [rows[key] for key in sorted(rows)], 2),
        plot="costs",
        plot_words="Cost curves T(n)",
    )  # fmt: skip


def _loads(sweep: SweepResults) -> Section:
    loaded = [found[0] for pair in sweep.pairs if (found := sweep.of_pair(*pair))]
    rows = [
        (
            c.target,
            c.draft,
            _gigabytes(c.model_size) + (f" + {_gigabytes(c.draft_size)}" if c.draft_size else ""),
            shown(c.load_s, ".1f"),
            _gigabytes(c.peak_rss_bytes),
            _gigabytes(c.vram_bytes),
            shown(c.n_ctx, ","),
        )
        for c in loaded
    ]
    header = ("target", "draft", "files, GB", "load, s", "peak RAM, GB", "GPU, GB", "context")
    return Section("Loading and memory", table=Table(header, rows, 2))


def _prediction(sweep: SweepResults) -> Section:
    words = [
        "One plain answer to each prompt was read again by both models; replaying it on the cost "
        "tables gives the speed of every other way of drafting."
    ]
    if sweep.prediction_error is not None:
        within = sum(abs(check.error) <= 0.1 for check in sweep.checks)
        bias = statistics.median(check.error for check in sweep.checks)
        words.append(
            f"Against {len(sweep.checks)} live results of single prompts (K fixed, the controller, "
            f"copies) the predicted tokens/s were off by {sweep.prediction_error:.1%} in the "
            f"median ({bias:+.1%} with its sign); {within} of {len(sweep.checks)} within 10 %."
        )
    else:
        words.append("There was no live run to check it against.")
    predicted = {pair: sweep.predicted(*pair) for pair in sweep.pairs}
    names = list(dict.fromkeys(name for found in predicted.values() for name in found))
    rows = [
        (*pair, *(shown(found.get(name), ".2f") for name in names))
        for pair, found in predicted.items()
    ]
    header = ("target", "draft", *(name.removeprefix("controller, ") for name in names))
    return Section("Predicted speed-up", words, table=Table(header, rows, 2))


def _sampled(sweep: SweepResults) -> list[Section]:
    found = {pair: ways for pair in sweep.pairs if (ways := sweep.sampled(*pair))}
    if not found:
        return []
    names = list(dict.fromkeys(way for ways in found.values() for way in ways))
    rows = [
        (*pair, *("{:.2f} (K={})".format(*ways[n]) if n in ways else MISSING for n in names))
        for pair, ways in found.items()
    ]
    header = ("target", "draft", *(f"{verifier}, {t}" for t, verifier in names))
    words = [
        "Speed over plain of the best fixed length, by verifier and temperature with the other "
        "sampling settings at their defaults: estimates from the distributions of both models "
        "over the recorded answers. Not checked by live runs here."
    ]
    return [Section("Predicted when sampling", words, table=Table(header, rows, 2))]


def _failures(sweep: SweepResults) -> Section:
    rows = dict.fromkeys(
        (c.target, c.draft, c.setting if c.n_failed else "all", c.error or "") for c in sweep.failed
    )
    return Section("Not measured", table=Table(("target", "draft", "setting", "why"), [*rows], 4))


def _gigabytes(n_bytes: int | None, unit: str = "") -> str:
    return f"{n_bytes / 1e9:.2f}{unit}" if n_bytes else MISSING


def _listed(values: Iterable[Any], none: str = MISSING) -> str:
    return ", ".join(map(str, sorted(values))) or none


def _options(given: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in given.items()) or "defaults"
