"""One setting of one pair, summed up from its runs: medians, ratios to plain, and their intervals.

Pure: rows in. Intervals are by bootstrap and say how far another sweep of this kind may differ.
Samples come in clusters, one for each prompt, since the repetitions of one prompt are alike:
clusters are drawn first, then samples within them. A bootstrap of fewer than five clusters is too
narrow by far; there the interval is the range of all samples, and of fewer than five samples there
is none.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, TypeVar

import numpy as np

from localspec.bench.plan import NO_DRAFT, PLAIN

__all__ = ["Configuration", "Interval", "RowFields", "median_interval", "summarise"]

Row = Mapping[str, Any]
Self = TypeVar("Self", bound="RowFields")
_OF_PAIR = ("model_type", "model_n_params", "draft_type", "draft_size", "n_gpu_layers", "n_threads",
            "n_batch", "n_ctx", "flash_attn", "type_k", "type_v", "device", "power", "load_s",
            "peak_rss_bytes", "vram_bytes", "t_ms", "d_ms")  # fmt: skip


_N_DRAWS = 2000
_LEVEL = 0.95
_FEWEST = 5  # the range of so many samples holds their median 94 times in 100


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the 95 % interval around it; None where there are too few samples for one."""

    median: float
    low: float | None
    high: float | None

    def times(self, factor: float) -> Interval:
        """The same in another unit."""
        if self.low is None or self.high is None:
            return Interval(self.median * factor, None, None)
        return Interval(self.median * factor, self.low * factor, self.high * factor)

    def overlaps(self, other: Interval) -> bool | None:
        """None where one of them has no bounds."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return None
        return self.low <= other.high and other.low <= self.high

    def shown(self, spec: str) -> str:
        """Such as `1.20 [1.10, 1.30]`; the median alone without bounds."""
        if self.low is None or self.high is None:
            return f"{self.median:{spec}}"
        return f"{self.median:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


class RowFields:
    """A dataclass whose fields are those of a row of type `row_type`."""

    __slots__ = ()
    row_type: ClassVar[str]

    def as_row(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {"type": self.row_type, **dataclasses.asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def of_row(cls: type[Self], row: Row) -> Self:
        """What as_row() wrote; keys of later versions are left out."""
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        given = {name: row[name] for name in names if name in row}
        return cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in given.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(RowFields):
    """One setting of a pair, summed up; None is what could not be measured.

    avg_ns, samples_ns: of decoding one answer. avg_ts, samples_ts: tokens/s of decoding, prefill
    apart; median_ts with the bounds of its 95 % interval. speed_up: median of the ratios to plain.
    n_prompt: median tokens. acceptance: accepted / (accepted + rejected). accepted_by_position,
    judged_by_position: accepted draft tokens, and accepted and rejected ones, at each position.
    draft_share, verify_share, other_share: of the decoding time.
    sum_min: mean Σ min(p, q) at temperature 1 over the answers. t_ms, d_ms: T(n) and D(n) by n.
    categories: median tokens/s and speed-up of each. n_failed: answers that gave an error.
    """

    row_type: ClassVar[str] = "configuration"

    target: str
    draft: str
    setting: str
    flags: str
    target_reference: str
    draft_reference: str | None
    model_filename: str
    draft_filename: str | None
    target_quant: str
    draft_quant: str | None
    model_size: int
    target_from_lossy: bool
    draft_from_lossy: bool
    error: str | None = None
    model_type: str | None = None
    model_n_params: int | None = None
    draft_type: str | None = None
    draft_size: int | None = None
    n_gpu_layers: int | None = None
    n_threads: int | None = None
    n_batch: int | None = None
    n_ctx: int | None = None
    flash_attn: str | None = None
    type_k: str | None = None
    type_v: str | None = None
    device: str | None = None
    power: str | None = None
    load_s: float | None = None
    peak_rss_bytes: int | None = None
    vram_bytes: int | None = None
    n_prompt: int | None = None
    n_gen: int | None = None
    n_runs: int = 0
    n_failed: int = 0
    test_time: str | None = None
    avg_ns: int | None = None
    stddev_ns: int | None = None
    avg_ts: float | None = None
    stddev_ts: float | None = None
    median_ts: float | None = None
    median_ts_low: float | None = None
    median_ts_high: float | None = None
    speed_up: float | None = None
    speed_up_low: float | None = None
    speed_up_high: float | None = None
    acceptance: float | None = None
    accepted_by_position: tuple[int, ...] = ()
    judged_by_position: tuple[int, ...] = ()
    tokens_per_pass: float | None = None
    n_draft_mean: float | None = None
    ttft_s: float | None = None
    prompt_per_second: float | None = None
    draft_share: float | None = None
    verify_share: float | None = None
    other_share: float | None = None
    same_as_plain: float | None = None
    drafters: tuple[str, ...] = ()
    categories: Mapping[str, Mapping[str, float | None]] = dataclasses.field(default_factory=dict)
    sum_min: float | None = None
    t_ms: Mapping[str, float] | None = None
    d_ms: Mapping[str, float] | None = None
    samples_ns: tuple[int, ...] = ()
    samples_ts: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes a configuration the same one in two sweeps."""
        return self.target, self.draft, self.setting

    @property
    def tokens_per_s(self) -> Interval | None:
        """median_ts with its bounds."""
        if self.median_ts is None:
            return None
        return Interval(self.median_ts, self.median_ts_low, self.median_ts_high)

    @property
    def times_plain(self) -> Interval | None:
        """speed_up with its bounds."""
        if self.speed_up is None:
            return None
        return Interval(self.speed_up, self.speed_up_low, self.speed_up_high)

    @property
    def verdict(self) -> str:
        """By the interval of speed_up: `pays`, `costs`, or `no difference` that a sweep can tell.

        `nothing drafted` where a ratio would be the noise of plain decoding against itself;
        `too few` answers for an interval; `baseline` for plain decoding.
        """
        if self.setting == PLAIN:
            return "baseline"
        if self.n_draft_mean == 0.0:
            return "nothing drafted"
        if self.speed_up_low is None or self.speed_up_high is None:
            return "too few"
        if self.speed_up_low > 1.0:
            return "pays"
        return "costs" if self.speed_up_high < 1.0 else "no difference"

    @property
    def has_draft_model(self) -> bool:
        """True when a draft model was loaded."""
        return self.draft != NO_DRAFT

    @property
    def memory_bytes(self) -> int | None:
        """GPU memory where the model is on a GPU, else the peak of the process."""
        return self.vram_bytes if self.vram_bytes else self.peak_rss_bytes


def summarise(
    head: Mapping[str, Any], rows: Sequence[Row], pair: Row, *, n_gen: int
) -> Configuration:
    """Sum up the runs of one setting.

    rows: the pair's runs, plain ones among them, and its predictions. head: the fields that need
    no measurement. pair: the pair's own row.
    """
    setting = head["setting"]
    runs = [row for row in rows if row["type"] == "run"]
    mine = [run for run in runs if run["setting"] == setting]
    good = [run for run in mine if "error" not in run and run["n_gen"] > 0 and run["avg_ns"] > 0
            and run["avg_ts"] > 0]  # fmt: skip
    facts: dict[str, Any] = {name: pair.get(name) for name in _OF_PAIR}
    if not good:
        error = next((run["error"] for run in mine if "error" in run), "every answer was empty")
        return Configuration(**head, **facts, error=error, n_failed=len(mine))
    plain = {
        (run["prompt"], run["repetition"]): run["avg_ts"]
        for run in runs
        if run["setting"] == PLAIN and run.get("avg_ts")
    }
    speed = median_interval(_clusters(good, lambda run: run["avg_ts"]))
    gain = median_interval(_ratios(good, plain)) if setting != PLAIN else None
    ns = [run["avg_ns"] for run in good]
    rates = [run["avg_ts"] for run in good]
    decoding_s = sum(ns) / 1e9
    verified = _total(good, "judged_by_position")
    accepted = _total(good, "accepted_by_position")
    n_passes = sum(run["n_passes"] for run in good)
    assert speed is not None
    return Configuration(
        **head,
        **facts,
        n_prompt=round(statistics.median(run["n_prompt"] for run in good)),
        n_gen=n_gen,
        n_runs=len(good),
        n_failed=len(mine) - len(good),
        test_time=good[0]["test_time"],
        avg_ns=round(statistics.fmean(ns)),
        stddev_ns=round(statistics.stdev(ns)) if len(ns) > 1 else None,
        avg_ts=statistics.fmean(rates),
        stddev_ts=statistics.stdev(rates) if len(rates) > 1 else None,
        median_ts=speed.median,
        median_ts_low=speed.low,
        median_ts_high=speed.high,
        speed_up=gain.median if gain else None,
        speed_up_low=gain.low if gain else None,
        speed_up_high=gain.high if gain else None,
        acceptance=sum(accepted) / sum(verified) if sum(verified) else None,
        accepted_by_position=accepted,
        judged_by_position=verified,
        tokens_per_pass=sum(run["n_gen"] for run in good) / n_passes if n_passes else None,
        n_draft_mean=sum(run["draft_n"] for run in good) / n_passes if n_passes else None,
        ttft_s=_median(run["ttft_s"] for run in good),
        prompt_per_second=_median(run["prompt_per_second"] for run in good),
        draft_share=sum(run["draft_s"] for run in good) / decoding_s,
        verify_share=sum(run["verify_s"] for run in good) / decoding_s,
        other_share=sum(run["other_s"] for run in good) / decoding_s,
        same_as_plain=statistics.fmean(bool(run["same_as_plain"]) for run in good),
        drafters=tuple(sorted({run["drafter"] for run in good})),
        categories=_by_category(good, plain, is_plain=setting == PLAIN),
        sum_min=_sum_min(rows),
        samples_ns=tuple(ns),
        samples_ts=tuple(rates),
    )


def _ratios(good: Sequence[Row], plain: Mapping[tuple[str, int], float]) -> list[list[float]]:
    """Speed over plain of the same prompt and repetition, clustered by prompt."""
    paired = [run for run in good if (run["prompt"], run["repetition"]) in plain]
    return _clusters(paired, lambda r: r["avg_ts"] / plain[r["prompt"], r["repetition"]])


def _sum_min(rows: Sequence[Row]) -> float | None:
    """Over the tokens of all answers that were read again."""
    found = [r for r in rows if r["type"] == "prediction" and r["sum_min"] is not None]
    n = sum(row["n_gen"] for row in found)
    return sum(row["sum_min"] * row["n_gen"] for row in found) / n if n else None


def _by_category(
    good: Sequence[Row], plain: Mapping[tuple[str, int], float], *, is_plain: bool
) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for category in dict.fromkeys(run["category"] for run in good):
        runs = [run for run in good if run["category"] == category]
        ratios = [] if is_plain else [r for cluster in _ratios(runs, plain) for r in cluster]
        found[category] = {
            "median_ts": statistics.median(run["avg_ts"] for run in runs),
            "speed_up": statistics.median(ratios) if ratios else None,
        }
    return found


def _clusters(runs: Sequence[Row], value: Callable[[Row], float]) -> list[list[float]]:
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        by_prompt[run["prompt"]].append(value(run))
    return list(by_prompt.values())


def _total(runs: Sequence[Row], name: str) -> tuple[int, ...]:
    """Counts by position, over runs whose drafts were not equally long."""
    return tuple(map(sum, zip_longest(*(run[name] for run in runs), fillvalue=0)))


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def median_interval(clusters: Sequence[Sequence[float]], *, seed: int = 0) -> Interval | None:
    """The median of all samples; None without any. The same samples give the same interval."""
    kept = [np.asarray(cluster, dtype=np.float64) for cluster in clusters if len(cluster)]
    if not kept:
        return None
    pooled = np.concatenate(kept)
    median = float(np.median(pooled))
    if len(pooled) < _FEWEST:
        return Interval(median, None, None)
    if len(kept) < _FEWEST:
        return Interval(median, float(pooled.min()), float(pooled.max()))
    rng = np.random.default_rng(seed)
    sizes = np.array([len(cluster) for cluster in kept])
    table = np.zeros((len(kept), sizes.max()))
    for row, cluster in zip(table, kept, strict=True):
        row[: len(cluster)] = cluster
    drawn = rng.integers(0, len(kept), (_N_DRAWS, len(kept)))
    within = rng.random((*drawn.shape, table.shape[1])) * sizes[drawn][..., np.newaxis]
    samples = table[drawn[..., np.newaxis], within.astype(np.intp)]
    medians = np.median(samples.reshape(_N_DRAWS, -1), axis=1)
    low, high = np.quantile(medians, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Interval(median, float(low), float(high))
