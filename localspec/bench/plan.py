"""What a sweep will run: pairs of files, ways of drafting, prompts, how often."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.bench.prompts import BenchPrompt, fingerprint
from localspec.errors import LocalspecError
from localspec.gguf.header import read_header
from localspec.gguf.parts import part_paths
from localspec.gguf.types import UNQUANTISED
from localspec.visible import visible

__all__ = [
    "NO_DRAFT",
    "PLAIN",
    "Contender",
    "PairPlan",
    "Plan",
    "Setting",
    "contender",
    "level_label",
    "predicted_name",
    "unique_labels",
]


@dataclass(frozen=True, slots=True)
class Contender:
    """label: short, unique in its role. reference: what a person types to get the file.

    from_lossy: a level that was made here from a source quantised already, so that it can be no
    better than `source`, whatever its own precision. error: why the header could not be read.
    """

    label: str
    path: Path
    reference: str
    quant: str = "?"
    size_bytes: int = 0
    n_params: int = 0
    from_lossy: bool = False
    source: Path | None = None
    error: str | None = None

    @property
    def is_unquantised(self) -> bool:
        """True for F32, F16 and BF16."""
        return self.quant in UNQUANTISED


def contender(path: Path, reference: str, *, source: Path | None = None) -> Contender:
    """What the header says. source: the file that this level was made from, None for others."""
    label = _shown(path.stem)
    try:
        header = read_header(path)
        lossy_source = source is not None and read_header(source).quant not in UNQUANTISED
    except LocalspecError as error:
        size = sum(part.stat().st_size for part in part_paths(path) if part.is_file())
        return Contender(label, path, reference, size_bytes=size, error=str(error))
    if source is not None:
        label = level_label(source, header.quant)
    return Contender(
        label,
        path,
        reference,
        header.quant,
        header.total_size_bytes,
        header.n_params,
        from_lossy=lossy_source,
        source=source,
    )


def level_label(source: Path, quant: str) -> str:
    """The source's name with this quant in place of its own."""
    stem = re.sub(r"(?i)[-._](I?Q\d\w*|TQ\d_\d|MXFP4\w*|B?F16|F32)$", "", source.stem)
    return f"{_shown(stem)} {quant}"


def unique_labels(contenders: Iterable[Contender]) -> tuple[Contender, ...]:
    """Without repeated files; labels that are taken get as many folders of their file, or of the
    source of a level, as tell them apart, and where none do the name of the source.
    """
    kept: dict[Path, Contender] = {}
    for found in contenders:
        kept.setdefault(found.path.resolve(), found)
    groups: dict[str, list[Contender]] = {}
    for found in kept.values():
        groups.setdefault(found.label, []).append(found)
    fresh = {label: iter(_told_apart(label, group)) for label, group in groups.items()}
    return tuple(replace(found, label=next(fresh[found.label])) for found in kept.values())


def _told_apart(label: str, group: Sequence[Contender]) -> list[str]:
    """A label for each of a group that has one label."""
    if len(group) == 1 and label != "none":
        return [label]
    origins = [(found.source or found.path).resolve() for found in group]
    deepest = max(len(origin.parents) for origin in origins)
    for depth in range(1, deepest):
        labels = ["/".join((*o.parent.parts[1:][-depth:], label)) for o in origins]
        if len(set(labels)) == len(group):
            return labels
    labels = [f"{label} from {_shown(origin.name)}" for origin in origins]
    if len(set(labels)) == len(group):
        return labels
    return [f"{label} #{i}" for i in range(1, len(group) + 1)]


def _shown(name: str) -> str:
    """One line that is no markup for a report's code marks, and that every encoding can write."""
    text = visible(name).replace("\n", "\u240a").replace("\t", "\u2409").replace("`", "'")
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


PLAIN = "plain"
NO_DRAFT = "none"


@dataclass(frozen=True, slots=True)
class Setting:
    """A way of drafting. options: of Session.stream. flags: the same for `localspec run`."""

    name: str
    options: Mapping[str, Any]
    flags: str = ""


@dataclass(frozen=True, slots=True)
class PairPlan:
    """A target with a draft, or with none, and the settings to be run in turn, plain first."""

    target: Contender
    draft: Contender | None
    settings: tuple[Setting, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Target and draft by their labels."""
        return self.target.label, self.draft.label if self.draft else NO_DRAFT

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.target.label} + {self.draft.label if self.draft else 'no draft model'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole sweep.

    n_gen: tokens of an answer at most. repeat: answers to each prompt in each setting. n_drafts:
    fixed draft lengths to run live, besides the controller. delay_s: rest before each answer.
    loading, answering: options for every load and answer, as given. prompts_name: for people.
    has_quality: also let the targets read `text` (None is the built-in one), n_chunks of it at
    most.
    """

    targets: tuple[Contender, ...]
    drafts: tuple[Contender, ...]
    prompts: tuple[BenchPrompt, ...]
    prompts_name: str = "quick"
    n_gen: int = 128
    repeat: int = 3
    n_drafts: tuple[int, ...] = (3,)
    delay_s: float = 0.0
    loading: Mapping[str, Any] = field(default_factory=dict)
    answering: Mapping[str, Any] = field(default_factory=dict)
    text: Path | None = None
    n_chunks: int | None = None
    has_quality: bool = True

    def pairs(self) -> tuple[PairPlan, ...]:
        """Every target with every draft and with none.

        A target's pairs lie far apart, and targets change places from draft to draft: plain
        decoding of each is measured in all of them, at several times of a sweep that may take
        hours.
        """
        plain = Setting(PLAIN, {"drafter": "none"}, "--drafter none")
        copies = Setting("copies", {"drafter": "ngram"}, "--drafter ngram")
        ways = [Setting("auto", {"drafter": "auto"})]
        for k in self.n_drafts:
            options = {"drafter": "model", "n_draft": k}
            ways.append(Setting(f"K={k}", options, f"--drafter model --n-draft {k}"))
        found = []
        for i, draft in enumerate((None, *self.drafts)):
            turn = i % len(self.targets)
            settings = (plain, copies) if draft is None else (plain, *ways)
            found += [
                PairPlan(target, draft, settings)
                for target in (*self.targets[turn:], *self.targets[:turn])
            ]
        return tuple(found)

    @property
    def workload(self) -> dict[str, Any]:
        """What is asked of a pair."""
        return {
            "prompts": fingerprint(self.prompts),
            "n_gen": self.n_gen,
            "answering": dict(self.answering),
        }

    @property
    def blocks(self) -> tuple[tuple[BenchPrompt, int], ...]:
        """Prompt and repetition: what is answered in every setting before the next one."""
        return tuple((prompt, i) for i in range(self.repeat) for prompt in self.prompts)


def predicted_name(setting: str, drafter: str) -> str:
    """The name of a live setting among predictions; drafter as its stats say."""
    return setting if setting.startswith("K=") else f"controller, {drafter}"
