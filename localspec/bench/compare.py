"""Two sweeps side by side, when they can be compared at all.

The workload must be the same: prompts, length, sampling. What they ran on may differ only when a
person says that this is what is compared; every difference is named.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.bench.configuration import Configuration
from localspec.bench.sweep_results import SweepResults
from localspec.bench.tables import MISSING, Table, shown
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
        x, y = a.header["workload"].get(name), b.header["workload"].get(name)
        if x != y:
            if name == "prompts":  # fingerprints tell nobody anything
                x, y = (f"{s.header['prompts_name']}, {len(s.header['prompts'])} of them"
                        for s in (a, b))  # fmt: skip
            raise InvalidOptionError(
                f"these sweeps cannot be compared: {words} differ ({x} against {y})"
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
                "these sweeps cannot be compared: "
                f"{mine.target} + {mine.draft} are different files "
                f"({mine.model_size:,} and {other.model_size:,} bytes for the target)"
            )
    differences = _differences(a, b, both)
    if differences and not across:
        raise InvalidOptionError(
            f"these sweeps ran under different conditions: {'; '.join(differences)}. If that is "
            "what you compare, add --across"
        )
    header = ("target", "draft", "setting", "A tokens/s", "B tokens/s", "B / A", "A × plain",
              "B × plain", "differs")  # fmt: skip
    rows = [_row(mine, other) for mine, other in both]
    n_only_one = len(a.measured) + len(b.measured) - 2 * len(both)
    return Comparison(tuple(differences), Table(header, rows, 3), n_only_one)


def _differences(
    a: SweepResults, b: SweepResults, both: list[tuple[Configuration, Configuration]]
) -> list[str]:
    here, there = a.header["machine"], b.header["machine"]
    found = [
        f"{name} {here.get(name)} against {there.get(name)}"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
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
    return (
        a.target,
        a.draft,
        a.setting,
        f"{a.median_ts:.1f}",
        f"{b.median_ts:.1f}",
        f"{b.median_ts / a.median_ts:.2f}",
        shown(a.speed_up, ".2f"),
        shown(b.speed_up, ".2f"),
        _differs(a, b),
    )


def _differs(a: Configuration, b: Configuration) -> str:
    """Whether the intervals of their tokens/s lie apart."""
    assert a.tokens_per_s is not None
    assert b.tokens_per_s is not None
    overlap = a.tokens_per_s.overlaps(b.tokens_per_s)
    return MISSING if overlap is None else "no" if overlap else "yes"
