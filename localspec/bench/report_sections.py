"""The report as sections of words and tables: what Markdown, HTML and the terminal all show.

Pure: a SweepResults in, text in cells. What was not measured is an en dash, never a guess.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
)

__all__ = ["Section", "report_sections", "speed_table"]


@dataclass(frozen=True, slots=True)
class Section:
    """plot: the stem of a file in plots/ that belongs here; plot_words: what it shows."""

    title: str
    paragraphs: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
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
    found.append(Section("What the numbers mean, and what not", points=_MEANING))
    return tuple(
        replace(section, table=shortened(sweep, section.table)) if section.table else section
        for section in found
    )


_MEANING = (
    "Tokens/s count the answer's tokens by ids over the time of decoding; the prompt is timed "
    "apart. Each answer begins with empty caches and nothing learned, as `localspec run` does.",
    "× plain is the median of ratios, each against plain decoding of the same prompt in the same "
    "repetition, process and minute. Brackets are 95 % bootstrap intervals over prompts and "
    "repetitions (with fewer than five prompts the range of all answers, with fewer than five "
    "answers none); they say nothing of prompts of another kind.",
    "Acceptance is accepted / judged: tokens behind a rejected one were never looked at. Tokens "
    "per pass count the target's own token too; plain decoding has 1.",
    "Memory is the peak of a process that loaded this pair at this context size, or what the GPU "
    "had less of after loading.",
    "KL and perplexity compare quants of one model over one text. They are no measure of how "
    "good answers are, and a level made from a quantised file is compared with that file.",
    "Speculation does not change the law of the text; greedy text may part from plain greedy "
    "text at near ties (see `localspec audit`).",
)


def speed_table(sweep: SweepResults) -> Table:
    """Every configuration, the fastest first, names shortened; see _speed_rows."""
    return shortened(sweep, _speed_table(sweep))


def _without_repeated_baselines(sweep: SweepResults) -> list[Configuration]:
    """Plain decoding once a target: beside each draft it was measured as that pair's baseline."""
    plain = {c.target: c for c in reversed(sweep.measured) if c.setting == PLAIN}
    plain |= {c.target: c for c in sweep.measured if c.setting == PLAIN and not c.has_draft_model}
    return [c for c in sweep.measured if c.setting != PLAIN or plain[c.target] is c]


def _speed_table(sweep: SweepResults) -> Table:
    ranked = sorted(_without_repeated_baselines(sweep), key=lambda c: -_speed_of(sweep, c))
    header = ("target", "draft", "setting", "tokens/s", "× plain", "verdict", "accepted",
              "tokens/pass", "first token", "prefill", "memory")  # fmt: skip
    return Table(header, tuple(_speed_row(c) for c in ranked), 3)


def _speed_of(sweep: SweepResults, c: Configuration) -> float:
    speed = sweep.speed(c)
    return speed.median if speed else 0.0


def _speed_row(c: Configuration) -> tuple[str, ...]:
    return (
        _lossy(c.target, c.target_from_lossy),
        _lossy(c.draft, c.draft_from_lossy),
        c.setting,
        _number(c.median_ts, 1) + _bounds(c.median_ts_low, c.median_ts_high, 1),
        _number(c.speed_up, 2) + _bounds(c.speed_up_low, c.speed_up_high, 2),
        c.verdict,
        f"{c.acceptance:.0%}" if c.acceptance is not None else MISSING,
        _number(c.tokens_per_pass, 2),
        f"{c.ttft_s:.2f} s" if c.ttft_s is not None else MISSING,
        _number(c.prompt_per_second, 0),
        f"{c.memory_bytes / 1e9:.2f} GB" if c.memory_bytes is not None else MISSING,
    )


def _conditions(sweep: SweepResults) -> tuple[str, ...]:
    header = sweep.header
    machine, work = header["machine"], header["workload"]
    loads = [c for c in sweep.measured if c.n_threads is not None]
    threads = sorted({c.n_threads for c in loads if c.n_threads is not None})
    devices = sorted({c.device for c in loads if c.device is not None})
    power = sorted({c.power or "not stated" for c in loads})
    memory = machine["memory_bytes"]
    answering = ", ".join(f"{k} {v}" for k, v in work["answering"].items()) or "defaults"
    loading = ", ".join(f"{k} {v}" for k, v in header["loading"].items()) or "defaults"
    n = len(header["prompts"])
    points = [
        f"Machine: {machine['cpu_info']}, {machine['n_cpus']} processors"
        + (f", {memory / 1e9:.0f} GB of memory" if memory else "")
        + (f"; GPU: {machine['gpu_info']}" if machine["gpu_info"] else "")
        + f"; {machine['system']}.",
        f"In use: {', '.join(devices) or 'nothing'}; threads {_listed(threads)}; power "
        f"{_listed(power)}.",
        f"Engine: {machine['engine']}; localspec {machine['localspec']}; Python "
        f"{machine['python']}.",
        f"Prompts: {header['prompts_name']} ({n}: "
        f"{', '.join(dict.fromkeys(category for _, category in header['prompts']))}); up to "
        f"{work['n_gen']} tokens an answer, {header['repeat']} repetition"
        f"{'s' if header['repeat'] > 1 else ''}, rest "
        f"{header['delay_s']:g} s. Sampling: {answering}. Loading: {loading}.",
        *_what_names_leave_out(sweep),
        f"Begun {header['test_time']}; {sweep.n_runs} answers measured.",
    ]
    if sweep.n_unfinished:
        points.append(
            f"Unfinished: {sweep.n_unfinished} answers of a pair that was not measured to its end "
            "are left out. The same command goes on with it."
        )
    return tuple(points)


def _what_names_leave_out(sweep: SweepResults) -> list[str]:
    pairs = (("targets", short_targets(sweep)), ("drafts", short_drafts(sweep)))
    return [
        f"In the tables the {what} are named without {words!r}, with which all of them begin."
        for what, known in pairs
        if (words := common_words(known))
    ]


def _speed(sweep: SweepResults) -> Section:
    words = (
        "In the order of plain decoding of the target over all its pairs times × plain, which a "
        "change of the machine's speed between two pairs does not touch; tokens/s are as measured.",
        "A level made from a quantised source is marked †: its speed is real, its quality "
             "is at most its source's.",)  # fmt: skip
    marked = any(c.target_from_lossy or c.draft_from_lossy for c in sweep.measured)
    return Section("Speed", words if marked else words[:1], table=speed_table(sweep))


def _speed_up(sweep: SweepResults) -> Section:
    """Draft × target: the controller's live speed-up."""
    drafts = [d for d in sweep.drafts if any(c.draft == d for c in sweep.measured)]
    rows = []
    for target in sweep.targets:
        cells = []
        for draft in drafts:
            name = "auto" if draft != NO_DRAFT else "copies"
            found = next((c for c in sweep.of_pair(target, draft) if c.setting == name), None)
            cells.append(_number(found.speed_up if found else None, 2))
        rows.append((target, *cells))
    header = ("target", *(d if d != NO_DRAFT else "no draft: copies" for d in drafts))
    return Section(
        "Speed-up by draft and target",
        ("Over plain decoding of the same target; the draft length is the controller's.",),
        table=Table(header, tuple(rows)),
        plot="speed-up",
        plot_words="Heat map of the speed-up over plain, draft by target",
    )


def _categories(sweep: SweepResults) -> Section:
    names = tuple(dict.fromkeys(category for _, category in sweep.header["prompts"]))
    rows = [
        (c.target, c.draft, c.setting,
         *(_number((c.categories.get(name) or {}).get("speed_up"), 2) for name in names))
        for c in sweep.measured if c.setting != PLAIN
    ]  # fmt: skip
    return Section(
        "Speed-up by kind of prompt",
        ("Medians over plain; with few prompts of a kind they are single cases.",),
        table=Table(("target", "draft", "setting", *names), tuple(rows), 3),
    )


def _quality(sweep: SweepResults) -> Section:
    if not sweep.qualities:
        return Section("Quality", ("Not measured in this sweep.",))
    rows, words = [], []
    for target, q in sweep.qualities.items():
        if q.error is not None:
            words.append(f"{target} could not be read: {q.error}")
            continue
        against = f"{_digits(q.kl_mean, 4)} ± {_digits(q.kl_error, 2)}"
        rows.append(
            (
                target,
                f"{_digits(q.perplexity, 6)} ± {_digits(q.perplexity_error, 2)}",
                "reference" if q.reference == target else against,
                f"{q.top1_agreement:.1%}" if q.top1_agreement is not None else MISSING,
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
        tuple(words),
        table=Table(header, tuple(rows)),
        plot="speed-quality",
        plot_words="Speed against quality; the Pareto front is marked",
    )


def _acceptance(sweep: SweepResults) -> Section:
    drafting = [c for c in sweep.measured if c.judged_by_position]
    n = min(8, max((len(c.judged_by_position) for c in drafting), default=0))
    rows = []
    for c in drafting:
        rates = [
            f"{a / j:.0%}" if j else MISSING
            for a, j in zip(c.accepted_by_position[:n], c.judged_by_position[:n], strict=True)
        ]
        rates += [MISSING] * (n - len(rates))
        agreement = sweep.agreements.get((c.target, c.draft))
        rows.append((c.target, c.draft, c.setting, *rates,
                     _number(sweep.sum_min(c.target, c.draft), 3),
                     _digits(agreement.kl if agreement else None, 3)))  # fmt: skip
    header = ("target", "draft", "setting", *map(str, range(1, n + 1)), "Σ min(p, q)",
              "draft's KL")  # fmt: skip
    return Section(
        "Acceptance by position",
        ("Of the tokens judged at each place of a draft. Σ min(p, q), at temperature 1, is the "
         "chance that a token drawn from the draft model is accepted.",),
        table=Table(header, tuple(rows), 3),
        plot="acceptance",
        plot_words="Acceptance by position in the draft",
    )  # fmt: skip


def _time(sweep: SweepResults) -> Section:
    rows = [
        (c.target, c.draft, c.setting, _percent(c.draft_share), _percent(c.verify_share),
         _percent(c.other_share), _number(c.n_draft_mean, 2), _percent(c.same_as_plain))
        for c in _without_repeated_baselines(sweep)
    ]  # fmt: skip
    header = ("target", "draft", "setting", "draft", "verify", "other", "drafted/round",
              "same text as plain")  # fmt: skip
    return Section(
        "Where the time goes",
        table=Table(header, tuple(rows), 3),
        plot="time",
        plot_words="Share of decoding time: draft, verification, other",
    )


def _costs(sweep: SweepResults) -> Section:
    sizes = (1, 2, 3, 4, 5, 6, 8, 12, 16)
    rows: dict[tuple[str, str], tuple[str, ...]] = {}
    for (target, draft), pair in sweep.pairs.items():
        for kind, label, found in (("T", target, pair.get("t_ms")), ("D", draft, pair.get("d_ms"))):
            if found and (kind, label) not in rows:
                cells = [f"{found[str(n)]:.3g}" if str(n) in found else MISSING for n in sizes]
                rows[kind, label] = (f"{kind}(n)", label, *cells)
    return Section(
        "Costs of one decode, milliseconds",
        ("T(n): the target decodes n tokens with all rows of logits. D(n): the draft, with the "
         "last row. The best of three with empty caches, before anything was drafted.",),
        table=Table(("", "model", *map(str, sizes)), tuple(rows[key] for key in sorted(rows)), 2),
        plot="costs",
        plot_words="Cost curves T(n)",
    )  # fmt: skip


def _loads(sweep: SweepResults) -> Section:
    rows = []
    for target, draft in sweep.pairs:
        c = next(iter(sweep.of_pair(target, draft)), None)
        if c is None:
            continue
        sizes = f"{c.model_size / 1e9:.2f}" + (
            f" + {c.draft_size / 1e9:.2f}" if c.draft_size else ""
        )
        peak = _number(c.peak_rss_bytes / 1e9 if c.peak_rss_bytes else None, 2)
        vram = _number(c.vram_bytes / 1e9 if c.vram_bytes else None, 2)
        rows.append((target, draft, sizes, _number(c.load_s, 1), peak, vram,
                     f"{c.n_ctx:,}" if c.n_ctx else MISSING))  # fmt: skip
    header = ("target", "draft", "files, GB", "load, s", "peak RAM, GB", "GPU, GB", "context")
    return Section("Loading and memory", table=Table(header, tuple(rows), 2))


def _prediction(sweep: SweepResults) -> Section:
    words = [
        "One plain answer to each prompt was read again by both models; replaying it on the cost "
        "tables gives what every other way of drafting would have made of it."
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
        words.append("No live run was there to check it.")
    names = list(dict.fromkeys(n for pair in sweep.pairs for n in sweep.predicted(*pair)))
    rows = []
    for pair in sweep.pairs:
        found = sweep.predicted(*pair)
        rows.append((*pair, *(_number(found.get(name), 2) for name in names)))
    header = ("target", "draft", *(name.removeprefix("controller, ") for name in names))
    return Section("Predicted speed-up", tuple(words), table=Table(header, tuple(rows), 2))


def _sampled(sweep: SweepResults) -> list[Section]:
    found = {pair: ways for pair in sweep.pairs if (ways := sweep.sampled(*pair))}
    if not found:
        return []
    names = tuple(dict.fromkeys(way for ways in found.values() for way in ways))
    rows = [
        (*pair, *(f"{ways[name][0]:.2f} (K={ways[name][1]})" for name in names))
        for pair, ways in found.items()
    ]
    header = ("target", "draft", *(f"{verifier}, {t}" for t, verifier in names))
    words = (
        "Speed over plain of the best fixed length, by verifier and temperature with the other "
        "sampling settings at their defaults: estimates from the laws that both models had over "
        "the recorded answers. Not checked by live runs here.",
    )
    return [Section("Predicted when sampling", words, table=Table(header, tuple(rows), 2))]


def _failures(sweep: SweepResults) -> Section:
    rows = dict.fromkeys(
        (c.target, c.draft, c.setting if c.n_failed else "all", c.error or "") for c in sweep.failed
    )
    return Section("Not measured", table=Table(("target", "draft", "setting", "why"),
                                               tuple(rows), 4))  # fmt: skip


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def _digits(value: float | None, n: int) -> str:
    """So many significant ones."""
    return MISSING if value is None else f"{value:.{n}g}"


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0%}"


def _bounds(low: float | None, high: float | None, digits: int) -> str:
    return "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"


def _lossy(label: str, from_lossy: bool) -> str:
    return label + LOSSY if from_lossy else label


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or MISSING
