"""What decoding costs on this machine: seconds by batch size and depth, as measured.

T(n) is one target decode of n tokens with all n rows of logits, D(n) one draft decode of n tokens
with the last row only, both to the end of the native call. The values are jagged, since a batch
of 4 may be cheaper than one of 3, and are kept as they are. Only what lies between measured sizes
is interpolated.

A machine's speed drifts (other programs, heat). One factor, shared by both tables and renewed by
every decode of the target, follows that, while the tables keep the shape.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CostTable", "Costs", "Undo"]

_SHALLOWEST = 9  # depths below 2**9 tokens share a bucket; each doubling has its own
_DRIFT_WEIGHT = 0.2
_LEAST_WEIGHT = 0.03
_DOUBT = 0.01
_MOST_DOUBT = math.log(1.1)  # of what was timed more than once
_LARGEST_STEP = math.log(2.0)  # one stalled decode must not upset the table


class Drift:
    """How much slower (in log) this machine is now than when the tables were filled."""

    def __init__(self) -> None:
        self.log = 0.0


@dataclass(slots=True)
class _Cell:
    """log: of the seconds. doubt: what was taken from it since it was last seen."""

    log: float
    count: int
    doubt: float = 0.0

    def confirm(self, now: float) -> None:
        """Give back what was doubted, as far as a new time bears it out."""
        self.log, self.doubt = min(self.log + self.doubt, max(self.log, now)), 0.0


class CostTable:
    """Seconds of one decode of n tokens in a cache of `depth` tokens.

    moves_drift: the target's decodes tell how fast the machine is; the draft's only follow, or a
    draft that is dearer than it looked would make plain decoding look dearer too.
    """

    def __init__(self, drift: Drift, *, moves_drift: bool = True) -> None:
        self._drift = drift
        self._moves_drift = moves_drift
        self._buckets: dict[int, dict[int, _Cell]] = {}

    def observe(self, n: int, depth: int, seconds: float) -> None:
        """Learn from one decode of n tokens."""
        if seconds <= 0.0:
            return
        cells = self._buckets.setdefault(_bucket(depth), {})
        now = math.log(seconds) - self._drift.log
        cell = cells.get(n)
        if cell is None:
            cells[n] = _Cell(now, 1)
            return
        cell.confirm(now)
        off = max(-_LARGEST_STEP, min(_LARGEST_STEP, now - cell.log))
        cell.count += 1
        cell.log += off * max(1.0 / (cell.count + 4), _LEAST_WEIGHT)
        if self._moves_drift:
            self._drift.log += off * _DRIFT_WEIGHT
        _doubt(cells, n)

    def set(self, n: int, depth: int, seconds: float) -> None:
        """Enter a measurement made on purpose; it replaces what was there."""
        self._buckets.setdefault(_bucket(depth), {})[n] = _Cell(
            math.log(max(seconds, 1e-9)) - self._drift.log, 2
        )

    def forget(self, depth: int) -> None:
        """Drop what was timed in this range of depths."""
        self._buckets.pop(_bucket(depth), None)

    def rescale(self, n: int, depth: int, seconds: float) -> None:
        """Make the whole table fit one fresh measurement; its shape stays."""
        old = self.seconds(n, depth)
        if not 0.0 < old < math.inf or seconds <= 0.0:
            return
        for cells in self._buckets.values():
            for cell in cells.values():
                cell.log += math.log(seconds / old)

    def is_measured(self, n: int, depth: int = 0) -> bool:
        """True when a decode of this size was timed in this range of depths."""
        return n in self._buckets.get(_bucket(depth), {})

    @property
    def is_empty(self) -> bool:
        """True when nothing was timed yet."""
        return not self._buckets

    def seconds(self, n: int, depth: int = 0) -> float:
        """The cost now; between measured sizes interpolated, beyond them extended. inf if none."""
        cell = self._buckets.get(_bucket(depth), {}).get(n)
        if cell is not None:
            return math.exp(cell.log + self._drift.log)
        return self.row(depth, n)[n]

    def row(self, depth: int, n_max: int) -> list[float]:
        """seconds(0 … n_max) at one depth; the value for 0 is 0."""
        if not self._buckets:
            return [0.0] + [math.inf] * n_max
        here = _bucket(depth)
        known = self._known(here)
        sizes = sorted(known)
        factor = math.exp(self._drift.log)
        return [0.0] + [factor * _between(known, sizes, n) for n in range(1, n_max + 1)]

    def _known(self, here: int) -> dict[int, float]:
        """Seconds by size at this depth; others as elsewhere, scaled to it."""
        cells = self._buckets.get(here, {})
        known = {n: math.exp(cell.log) for n, cell in cells.items()}
        for other in sorted(self._buckets, key=lambda bucket: abs(bucket - here)):
            if other == here:
                continue
            there = self._buckets[other]
            common = sorted(n for n in cells if n in there)
            shift = {n: cells[n].log - there[n].log for n in common}
            for n, cell in there.items():
                known.setdefault(n, math.exp(cell.log + _level(shift, common, n)))
        return known

    def to_json(self) -> dict[str, dict[str, float]]:
        """Seconds as of now, by bucket and size."""
        return {
            str(bucket): {
                str(n): math.exp(cell.log + cell.doubt + self._drift.log)
                for n, cell in cells.items()
            }
            for bucket, cells in self._buckets.items()
        }

    def load_json(self, stored: Mapping[str, Any]) -> bool:
        """Take over what an earlier run measured; False, and nothing changes, when damaged."""
        try:
            buckets = {
                int(bucket): {
                    int(n): _Cell(math.log(seconds) - self._drift.log, 3)
                    for n, seconds in sizes.items()
                }
                for bucket, sizes in stored.items()
            }
        except (AttributeError, TypeError, ValueError):
            return False
        if not any(1 in sizes for sizes in buckets.values()):
            return False
        self._buckets = buckets
        return True


@dataclass(frozen=True, slots=True)
class Undo:
    """What it takes to refuse a draft where the memory cannot be cut, in seconds.

    checkpoint_s: before every verification. restore_s: after one that was not accepted as a whole;
    then the accepted tokens are read once more, in front of the next batch.
    """

    checkpoint_s: float
    restore_s: float

    def seconds(self, chance: float, n_again: float, row: Sequence[float]) -> float:
        """Beyond the batch itself, for a draft that is accepted as a whole with `chance`.

        n_again: tokens that a refusal would have to read again, as expected. row: T(0 …).
        """
        n = min(len(row) - 1, 1 + round(n_again))
        return self.checkpoint_s + (1.0 - chance) * (self.restore_s + row[n] - row[1])


@dataclass(slots=True)
class Costs:
    """T, D and the drift they share. `draft` stays empty without a draft model.

    may_verify: the batch sizes that may be used; None allows all (exact mode: the sizes whose
    rows are bit-identical to single-token rows). undo: None where the target's memory can be cut,
    which costs nothing.
    """

    drift: Drift = field(default_factory=Drift)
    target: CostTable = field(init=False)
    draft: CostTable = field(init=False)
    may_verify: Callable[[int], bool] | None = None
    undo: Undo | None = None

    def __post_init__(self) -> None:
        self.target = CostTable(self.drift)
        self.draft = CostTable(self.drift, moves_drift=False)

    def verify_row(self, depth: int, n_max: int) -> list[float]:
        """T(0 … n_max); sizes that may not be used cost infinity."""
        row = self.target.row(depth, n_max)
        if self.may_verify is not None:
            row = [t if n <= 1 or self.may_verify(n) else math.inf for n, t in enumerate(row)]
        return row

    def to_json(self) -> dict[str, Any]:
        """Both tables, seconds as of now."""
        return {"target": self.target.to_json(), "draft": self.draft.to_json()}


def _doubt(cells: dict[int, _Cell], n_seen: int) -> None:
    """Let sizes that look dearer than their neighbours slowly lose that look until seen again.

    A size that one stalled decode made too dear would never be used, and so never corrected. What
    was timed more than once is doubted a little only: some sizes are dearer than those on either
    side, and to try them again and again would cost more than it could ever save.
    """
    sizes = sorted(cells)
    for below, n, above in zip(sizes, sizes[1:], sizes[2:], strict=False):
        if n == n_seen:
            continue
        share = (n - below) / (above - below)
        even = (1 - share) * math.exp(cells[below].log) + share * math.exp(cells[above].log)
        cell = cells[n]
        step = _DOUBT * max(0.0, cell.log - math.log(even))
        if cell.count > 1:
            step = min(step, _MOST_DOUBT - cell.doubt)
        cell.log -= step
        cell.doubt += step


def _bucket(depth: int) -> int:
    return max(_SHALLOWEST, depth.bit_length())


def _level(shift: Mapping[int, float], sizes: list[int], n: int) -> float:
    """The shift at n: between the nearest sizes, level beyond them, 0 without any."""
    if not sizes:
        return 0.0
    low = max((size for size in sizes if size <= n), default=sizes[0])
    high = min((size for size in sizes if size >= n), default=sizes[-1])
    if low >= high:
        return shift[high if n < high else low]
    return shift[low] + (n - low) / (high - low) * (shift[high] - shift[low])


def _between(known: Mapping[int, float], sizes: list[int], n: int) -> float:
    if n in known:
        return known[n]
    above = bisect_left(sizes, n)
    if above == 0:
        return known[sizes[0]]
    low = sizes[above - 1]
    if above < len(sizes):
        high = sizes[above]
        share = (n - low) / (high - low)
        return known[low] + share * (known[high] - known[low])
    if above == 1:
        return known[low] * n / low
    below = sizes[above - 2]
    slope = max(0.0, (known[low] - known[below]) / (low - below))
    return known[low] + slope * (n - low)
