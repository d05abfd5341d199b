"""Two sweeps side by side, when they can be compared at all.

The workload must be the same: prompts, length, sampling. What they ran on may differ only when a
person says that this is what is compared; every difference is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.bench.configuration import Configuration
from localspec.bench.sweep_results import SweepResults
from localspec.bench.tables import Table
from localspec.errors import InvalidOptionError

__all__ = ["Comparison", "compare"]

_WORKLOAD = {"prompts": "the prompts", "n_gen": "tokens of an answer", "answering": "sampling"}
_CONDITIONS = ("n_threads", "n_gpu_layers", "n_batch", "n_ctx", "flash_attn", "type_k", "type_v",
               "device", "power")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """differences: in what the sweeps ran on. table: one row for each configuration of both."""

    differences: tuple[str, ...]
    table: Table
    n_only_one: int


def compare(a: SweepResults, b: SweepResults, *, across: bool = False) -> Comparison:
    """Raises InvalidOptionError with the reason when a comparison would mean nothing.

    across: other machines, engines, load options or weights are what is compared.
    """
    for name, words in _WORKLOAD.items():
        theirs = a.header["workload"].get(name), b.header["workload"].get(name)
        if theirs[0] != theirs[1]:
            raise InvalidOptionError(
                f"these sweeps cannot be compared: {words} differ ({_told(a, b, name, theirs)})"
            )
    by_key = {c.key: c for c in b.measured}
    both = [(c, by_key[c.key]) for c in a.measured if c.key in by_key]
    if not both:
        raise InvalidOptionError(
            "these sweeps cannot be compared: no target, draft and setting was measured in both"
        )
    for mine, other in both:
        if mine.model_size != other.model_size or mine.draft_size != other.draft_size:
            raise InvalidOptionError(
                f"these sweeps cannot be compared: {mine.target} + {mine.draft} are other files "
                f"({mine.model_size:,} and {other.model_size:,} bytes for the target)"
            )
    differences = _differences(a, b, both)
    if differences and not across:
        raise InvalidOptionError(
            f"these sweeps ran under different conditions: {'; '.join(differences)}. If that is "
            "what you compare, add --across"
        )
    header = ("target", "draft", "setting", "A tokens/s", "B tokens/s", "B / A", "A × plain",
              "B × plain", "told apart")  # fmt: skip
    rows = tuple(_row(mine, other) for mine, other in both)
    n_only_one = len(a.measured) + len(b.measured) - 2 * len(both)
    return Comparison(tuple(differences), Table(header, rows, 3), n_only_one)


def _differences(
    a: SweepResults, b: SweepResults, both: list[tuple[Configuration, Configuration]]
) -> list[str]:
    machines: tuple[Mapping[str, Any], Mapping[str, Any]] = (
        a.header["machine"],
        b.header["machine"],
    )
    found = [
        f"{name} {machines[0].get(name)} against {machines[1].get(name)}"
        for name in sorted({*machines[0], *machines[1]})
        if machines[0].get(name) != machines[1].get(name)
    ]
    names = [*(("target", x.target) for x, _ in both), *(("draft", x.draft) for x, _ in both)]
    found += [
        f"{' '.join(name)} is another file"
        for name in dict.fromkeys(names)
        if name in a.files and a.files[name] != b.files.get(name, a.files[name])
    ]
    for name in _CONDITIONS:
        pairs = {(getattr(x, name), getattr(y, name)) for x, y in both}
        found += [f"{name} {x} against {y}" for x, y in sorted(pairs, key=str) if x != y]
    return found


def _row(a: Configuration, b: Configuration) -> tuple[str, ...]:
    assert a.median_ts is not None
    assert b.median_ts is not None
    apart = "–"
    if None not in (a.median_ts_low, a.median_ts_high, b.median_ts_low, b.median_ts_high):
        overlap = a.median_ts_low <= b.median_ts_high and b.median_ts_low <= a.median_ts_high  # type: ignore[operator]
        apart = "no" if overlap else "yes"
    return (
        a.target,
        a.draft,
        a.setting,
        f"{a.median_ts:.1f}",
        f"{b.median_ts:.1f}",
        f"{b.median_ts / a.median_ts:.2f}",
        "–" if a.speed_up is None else f"{a.speed_up:.2f}",
        "–" if b.speed_up is None else f"{b.speed_up:.2f}",
        apart,
    )


def _told(a: SweepResults, b: SweepResults, name: str, theirs: tuple[Any, Any]) -> str:
    if name == "prompts":
        counts = [f"{x.header['prompts_name']}, {len(x.header['prompts'])} of them" for x in (a, b)]
        return f"{counts[0]} against {counts[1]}"
    return f"{theirs[0]} against {theirs[1]}"
