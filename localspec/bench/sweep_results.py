"""What a sweep's rows say, in one object that report, recommendation and comparison read.

Pure: rows in. Runs of a pair that is still being measured are left out, and counted.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.bench.configuration import Configuration, Interval, median_interval
from localspec.bench.plan import NO_DRAFT, PLAIN, predicted_name
from localspec.bench.results_file import AgreementRow, QualityRow, require_rows
from localspec.errors import InvalidOptionError

__all__ = ["PredictionCheck", "SweepResults", "read_sweep"]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PredictionCheck:
    """Tokens/s that were predicted, and the live ones of the same prompt and setting."""

    setting: str
    predicted_ts: float
    live_ts: float

    @property
    def error(self) -> float:
        """Predicted over live tokens/s, minus 1."""
        return self.predicted_ts / self.live_ts - 1.0


@dataclass(frozen=True, slots=True)
class SweepResults:
    """header: of the sweep. pairs: loads and cost tables by (target, draft).

    plain_ts: tokens/s of plain decoding, by target, over all its pairs. files: fingerprints by
    (role, label).
    """

    header: Row
    configurations: tuple[Configuration, ...]
    pairs: Mapping[tuple[str, str], Row]
    predictions: tuple[Row, ...]
    checks: tuple[PredictionCheck, ...]
    qualities: Mapping[str, QualityRow]
    agreements: Mapping[tuple[str, str], AgreementRow]
    plain_ts: Mapping[str, Interval]
    n_runs: int
    n_unfinished: int
    files: Mapping[tuple[str, str], str]

    @property
    def measured(self) -> tuple[Configuration, ...]:
        """Those that were measured."""
        return tuple(c for c in self.configurations if c.error is None)

    @property
    def failed(self) -> tuple[Configuration, ...]:
        """Those that were not."""
        return tuple(c for c in self.configurations if c.error is not None)

    @property
    def targets(self) -> tuple[str, ...]:
        """Labels, in the order of the sweep."""
        return tuple(dict.fromkeys(c.target for c in self.configurations))

    @property
    def drafts(self) -> tuple[str, ...]:
        """Labels, in the order of the sweep, `none` among them."""
        return tuple(dict.fromkeys(c.draft for c in self.configurations))

    @property
    def measured_drafts(self) -> tuple[str, ...]:
        """Those of `drafts` with which anything was measured."""
        return tuple(d for d in self.drafts if any(c.draft == d for c in self.measured))

    def of_pair(self, target: str, draft: str) -> tuple[Configuration, ...]:
        """The measured settings of one pair."""
        return tuple(c for c in self.measured if (c.target, c.draft) == (target, draft))

    def speed(self, c: Configuration) -> Interval | None:
        """Tokens/s by which configurations are ranked, with the interval of the speed-up.

        Plain decoding of the target over all its pairs, times the speed-up within the pair: the
        machine may have been slower in the hour when this pair was measured.
        """
        plain = self.plain_ts.get(c.target)
        if c.setting == PLAIN or plain is None:
            return plain
        return c.times_plain.times(plain.median) if c.times_plain else None

    def ranking_ts(self, c: Configuration) -> float:
        """The median of speed(), 0 where it is not known."""
        speed = self.speed(c)
        return speed.median if speed else 0.0

    def controller_speed_up(self, target: str, draft: str) -> float | None:
        """Live over plain, with the controller's draft lengths; without a draft model by copies."""
        setting = "auto" if draft != NO_DRAFT else "copies"
        return next((c.speed_up for c in self.of_pair(target, draft) if c.setting == setting), None)

    @property
    def ranked(self) -> tuple[Configuration, ...]:
        """The ones to choose from, the fastest first: drafts that pay, and each target plain.

        What this sweep cannot tell from plain decoding is left out: it would only cost memory.
        """
        plain: dict[str, Configuration] = {}
        for c in sorted(self.measured, key=lambda c: c.has_draft_model):
            if c.setting == PLAIN:
                plain.setdefault(c.target, c)
        paying = [c for c in self.measured if c.verdict == "pays"]
        known = [c for c in (*plain.values(), *paying) if self.speed(c)]
        return tuple(sorted(known, key=self.ranking_ts, reverse=True))

    def kl(self, target: str) -> float | None:
        """Mean KL to the reference; 0 for the reference itself; None where unmeasured."""
        quality = self.qualities.get(target)
        if quality is None or quality.error is not None:
            return None
        return 0.0 if quality.reference == target else quality.kl_mean

    def sum_min(self, target: str, draft: str) -> float | None:
        """Mean Σ min(p, q): over the quality text where that was read, else over the answers."""
        read = self.agreements.get((target, draft))
        if read is not None and read.sum_min is not None:
            return read.sum_min
        return next((c.sum_min for c in self.of_pair(target, draft)), None)

    def predicted(self, target: str, draft: str) -> dict[str, float]:
        """Median predicted speed-up over the prompts, by way of drafting."""
        by_name: dict[str, list[float]] = defaultdict(list)
        for row in self.predictions:
            if _pair(row) == (target, draft):
                for name, speed_up in row["speed_up"].items():
                    by_name[name].append(speed_up)
        return {name: statistics.median(found) for name, found in by_name.items()}

    def sampled(self, target: str, draft: str) -> dict[tuple[str, str], tuple[float, int]]:
        """Best predicted speed-up and its K, by temperature and verifier; medians over prompts."""
        found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for row in self.predictions:
            if _pair(row) != (target, draft):
                continue
            for temperature, verifiers in (row.get("sampled") or {}).items():
                for verifier, by_k in verifiers.items():
                    for k, speed_up in by_k.items():
                        found[temperature, verifier][int(k)].append(speed_up)
        return {
            way: max((statistics.median(values), k) for k, values in by_k.items())
            for way, by_k in found.items()
        }

    @property
    def prediction_error(self) -> float | None:
        """Median of |predicted / live − 1| of tokens/s; None without live runs to compare."""
        return statistics.median(abs(c.error) for c in self.checks) if self.checks else None


def read_sweep(rows: Sequence[Row]) -> SweepResults:
    """Raises InvalidOptionError for rows of another shape, and where the header is missing."""
    of_type: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of_type[row["type"]].append(row)
    if not of_type["sweep"]:
        raise InvalidOptionError("these rows belong to no sweep: none of them is its header")
    require_rows(rows)
    configurations = tuple(map(Configuration.of_row, of_type["configuration"]))
    whole = {(c.target, c.draft) for c in configurations}  # a kill may come before these rows
    pairs = {_pair(row): row for row in of_type["pair"] if _pair(row) in whole}
    return SweepResults(
        header=of_type["sweep"][0],
        configurations=configurations,
        pairs=pairs,
        predictions=tuple(of_type["prediction"]),
        checks=tuple(_checks(of_type["prediction"], of_type["run"])),
        qualities={row["target"]: QualityRow.of_row(row) for row in of_type["quality"]},
        agreements={_pair(row): AgreementRow.of_row(row) for row in of_type["agreement"]},
        plain_ts=_plain(of_type["run"]),
        n_runs=len(of_type["run"]),
        n_unfinished=sum(_pair(run) not in pairs for run in of_type["run"]),
        files={(row["role"], row["label"]): row["fingerprint"] for row in of_type["file"]},
    )


def _pair(row: Row) -> tuple[str, str]:
    return row["target"], row["draft"]


def _answer(row: Row) -> tuple[str, str, str]:
    return row["target"], row["draft"], row["prompt"]


def _plain(runs: Sequence[Row]) -> dict[str, Interval]:
    by_target: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run["setting"] == PLAIN and run.get("avg_ts"):
            by_target[run["target"]][run["prompt"]].append(run["avg_ts"])
    found = {t: median_interval(list(clusters.values())) for t, clusters in by_target.items()}
    return {target: interval for target, interval in found.items() if interval is not None}


def _checks(predictions: Sequence[Row], runs: Sequence[Row]) -> list[PredictionCheck]:
    live: dict[tuple[str, str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.get("avg_ts"):
            live[_answer(run)][run["setting"]].append(run)
    found = []
    for row in predictions:
        settings = live[_answer(row)]
        plain = {run["repetition"] for run in settings.pop(PLAIN, [])}
        for setting, made in settings.items():
            ratio = row["speed_up"].get(predicted_name(setting, made[0]["drafter"]))
            if ratio is not None and any(run["repetition"] in plain for run in made):
                live_ts = statistics.median(run["avg_ts"] for run in made)
                found.append(PredictionCheck(setting, ratio * row["plain_ts"], live_ts))
    return found
