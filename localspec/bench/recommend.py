"""Which pair to run, in sentences that follow from the rows by fixed rules.

Speed is SweepResults.speed: plain decoding of the target, times the speed-up. Two speeds whose 95 %
intervals overlap are called alike. A level made from a lossy source is recommended for speed
alone. Nothing that was not measured is said.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.bench.configuration import Configuration, Interval
from localspec.bench.plan import PLAIN
from localspec.bench.sweep_results import SweepResults

__all__ = ["Limits", "Recommendation", "command", "recommend"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a person can afford: bytes of memory, mean KL in nats from the reference."""

    max_memory_bytes: int | None = None
    max_kl: float | None = None

    @property
    def words(self) -> str:
        """Such as `8.0 GB of memory and a KL of 0.05`; empty without any."""
        parts = []
        if self.max_memory_bytes is not None:
            parts.append(f"{self.max_memory_bytes / 1e9:.3g} GB of memory")
        if self.max_kl is not None:
            parts.append(f"a mean KL of {self.max_kl:g}")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """sentences: in order of weight. fastest: overall; best: under the limits; None if none."""

    sentences: tuple[str, ...]
    fastest: Configuration | None = None
    best: Configuration | None = None


def recommend(sweep: SweepResults, limits: Limits | None = None) -> Recommendation:
    """Judge a sweep."""
    limits = limits or Limits()
    ranked = sweep.ranked
    if not ranked:
        words = "Nothing could be measured" if sweep.failed else "No pair was measured completely"
        return Recommendation((f"{words}, so nothing is recommended.",))
    fastest = ranked[0]
    sentences = [f"Fastest: {_described(sweep, fastest)}", *_alike(sweep, ranked)]
    best: Configuration | None = None
    if limits.words:
        best, said = _within(sweep, ranked, limits)
        sentences.append(said)
    measured = {c.target for c in sweep.measured}
    sentences += [_of_target(sweep, target) for target in sweep.targets if target in measured]
    sentences += _caveats(sweep, ranked)
    return Recommendation(tuple(sentences), fastest, best)


def command(
    configuration: Configuration,
    *,
    temperature: float | None = None,
    loading: Mapping[str, Any] | None = None,
) -> str:
    """The `localspec run` that does the same. loading: the load options of the sweep."""
    words = ["localspec", "run", "--target", _typed(configuration.target_reference)]
    draft = configuration.draft_reference
    words += ["--draft", "none" if draft is None else _typed(draft)]
    words += configuration.flags.split()
    if temperature is not None:
        words += ["--temp", f"{temperature:g}"]
    for name, value in (loading or {}).items():
        words += [_quoted(f"--{name.replace('_', '-')}"), _quoted(str(value))]
    return " ".join(words)


def _typed(reference: str) -> str:
    """As a person types it to a shell, without the name of the home folder."""
    if reference in ("none", "auto") or reference.startswith("-"):  # a file of such a name
        reference = f"./{reference}"
    try:
        return f"~/{_quoted(Path(reference).relative_to(Path.home()).as_posix())}"
    except (ValueError, RuntimeError):  # elsewhere, or there is no home
        return _quoted(reference)


def _quoted(text: str) -> str:
    """One word for a shell; what a report or a terminal would not show as it is, in `$'…'`."""
    if text.isprintable() and "`" not in text:
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, os.fsencode(text)))}'"


def _escaped(byte: int) -> str:
    is_plain = 0x20 <= byte < 0x7F and chr(byte) not in "\\'`"
    return chr(byte) if is_plain else f"\\x{byte:02x}"


def _described(sweep: SweepResults, c: Configuration) -> str:
    speed, plain = sweep.speed(c), sweep.plain_ts[c.target]
    assert speed is not None
    if c.times_plain is None:
        measured = f"{_with_range(speed, '.1f')} tokens/s"
    else:
        measured = f"{speed.median:.1f} tokens/s: {_with_range(c.times_plain, '.2f')} times plain"
        measured += f" decoding, which reaches {plain.median:.1f}"
    parts = [f"{_name(c)}, {measured}"]
    if c.memory_bytes is not None:
        where = "GPU memory" if c.vram_bytes else "memory at its peak"
        parts.append(f"{c.memory_bytes / 1e9:.2f} GB of {where}")
    kl = sweep.kl(c.target)
    quality = sweep.qualities.get(c.target)
    if kl is not None and quality is not None and quality.reference != c.target:
        parts.append(f"mean KL {kl:.3g} from {quality.reference}")
    lossy = ""
    if c.target_from_lossy:
        lossy = (
            " This target was made from a file that was already quantised: it is named for its "
            "speed only, and cannot be better than its source."
        )
    temperature = sweep.header["workload"]["answering"].get("temperature")
    run = command(c, temperature=temperature, loading=sweep.header["loading"])
    return f"{', '.join(parts)}. Run it with `{run}`.{lossy}"


def _alike(sweep: SweepResults, ranked: Sequence[Configuration]) -> list[str]:
    """Those that this sweep cannot tell from the fastest, when they are better in something."""
    near = [c for c in ranked[1:] if _overlap(sweep, ranked[0], c)]
    if not near:
        return []
    names = "; ".join(_name(c) for c in near[:4])
    more = f" and {len(near) - 4} more" if len(near) > 4 else ""
    return [f"No measurable difference in speed from it (95 % intervals overlap): {names}{more}."]


def _overlap(sweep: SweepResults, a: Configuration, b: Configuration) -> bool:
    """Intervals of the speed-up where both have one target, since those are paired."""
    if a.target == b.target:
        one = Interval(1.0, 1.0, 1.0)
        x, y = (one if c.setting == PLAIN else c.times_plain for c in (a, b))
    else:
        x, y = sweep.speed(a), sweep.speed(b)
    return x is not None and y is not None and bool(x.overlaps(y))


def _within(
    sweep: SweepResults, ranked: Sequence[Configuration], limits: Limits
) -> tuple[Configuration | None, str]:
    kept = list(ranked)
    if limits.max_memory_bytes is not None:
        unknown = [c for c in kept if c.memory_bytes is None]
        kept = [c for c in kept if (c.memory_bytes or limits.max_memory_bytes + 1)
                <= limits.max_memory_bytes]  # fmt: skip
        if len(unknown) == len(ranked):
            return None, "The memory limit cannot be checked: no peak was measured here."
    if limits.max_kl is not None:
        measured = [c for c in kept if sweep.kl(c.target) is not None]
        if all(sweep.kl(target) is None for target in sweep.targets):
            return None, (
                "The quality limit cannot be checked: no KL was measured in this sweep. Run it "
                "without --no-quality."
            )
        kept = [c for c in measured if (sweep.kl(c.target) or 0.0) <= limits.max_kl]
    if not kept:
        return None, f"Nothing in this sweep stays within {limits.words}{_nearest(sweep, limits)}."
    return kept[0], f"Fastest within {limits.words}: {_described(sweep, kept[0])}"


def _nearest(sweep: SweepResults, limits: Limits) -> str:
    parts = []
    peaks = [c for c in sweep.measured if c.memory_bytes is not None]
    if limits.max_memory_bytes is not None and peaks:
        least = min(peaks, key=lambda c: c.memory_bytes or 0)
        parts.append(
            f"the smallest, {_name(least)}, takes {(least.memory_bytes or 0) / 1e9:.2f} GB"
        )
    kls = {t: kl for t in sweep.targets if (kl := sweep.kl(t)) is not None}
    if limits.max_kl is not None and kls:
        target = min(kls, key=lambda t: kls[t])
        parts.append(f"the nearest to the reference, {target}, has a KL of {kls[target]:.3g}")
    return f" ({'; '.join(parts)})" if parts else ""


def _of_target(sweep: SweepResults, target: str) -> str:
    """Does speculation pay with this target?"""
    mine = [c for c in sweep.measured if c.target == target and c.setting != PLAIN]
    tried = [c for c in mine if c.speed_up and c.verdict != "nothing drafted"]
    if not mine:
        return f"{target}: no way of drafting could be measured."
    if not tried:
        return f"{target}: nothing was worth drafting; without a draft model it needs less memory."
    best = max(tried, key=lambda c: (c.verdict == "pays", c.speed_up or 0.0))
    assert best.times_plain is not None
    ratio = _with_range(best.times_plain, ".2f")
    how = f"{best.setting} with {best.draft if best.has_draft_model else 'no draft model'}"
    if best.verdict == "pays":
        return f"{target}: drafting pays, {ratio} times plain at best ({how})."
    if best.verdict == "costs":
        return (
            f"{target}: drafting does not pay here, at best {ratio} times plain ({how}): "
            "run it with `--drafter none`."
        )
    if best.verdict == "no difference":
        return (
            f"{target}: drafting makes no measurable difference in this sweep, at best {ratio} "
            f"times plain ({how}); without a draft model it needs less memory."
        )
    return (
        f"{target}: {ratio} times plain at best ({how}), from "
        f"{'one answer' if best.n_runs == 1 else f'{best.n_runs} answers'}: too few to judge (at "
        "least five are needed)."
    )


def _caveats(sweep: SweepResults, ranked: Sequence[Configuration]) -> list[str]:
    found = []
    lossy = sorted({c.target for c in ranked if c.target_from_lossy})
    if lossy:
        found.append(
            "Made from a lossy source, so for speed only, whatever their KL: "
            f"{', '.join(lossy)}. For quality use a level made from an F16 or BF16 file."
        )
    speeds = [speed for c in ranked if (speed := sweep.speed(c))]
    if len({c.target for c in ranked}) > 1 and any(speed.low is None for speed in speeds):
        found.append(
            "Some of these speeds come from fewer than five answers, so their order may be chance: "
            "use more prompts or a larger --repeat."
        )
    if any(c.power == "battery" for c in ranked):
        found.append("Part of this was measured on battery power, where the machine may be slower.")
    if sweep.failed:
        pairs = {(c.target, c.draft) for c in sweep.failed}
        n = "One pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
        found.append(f"{n} could not be measured; the report says why.")
    return found


def _name(c: Configuration) -> str:
    draft = c.draft if c.has_draft_model else "no draft model"
    return f"{c.target} + {draft}, {c.setting}"


def _with_range(interval: Interval, spec: str) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.median:{spec}}"
    return f"{interval.median:{spec}} ({interval.low:{spec}}–{interval.high:{spec}})"
