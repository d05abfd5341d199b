"""What a sweep will run: pairs of files, ways of drafting, prompts, how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.bench.model_files import ModelFile
from localspec.bench.prompts import BenchPrompt, fingerprint

__all__ = ["NO_DRAFT", "PLAIN", "PairPlan", "Plan", "Setting", "predicted_name"]


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

    target: ModelFile
    draft: ModelFile | None
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

    targets: tuple[ModelFile, ...]
    drafts: tuple[ModelFile, ...]
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
    def n_runs(self) -> int:
        """Answers in all."""
        return sum(len(self.blocks) * len(pair.settings) for pair in self.pairs())

    @property
    def blocks(self) -> tuple[tuple[BenchPrompt, int], ...]:
        """Prompt and repetition: what is answered in every setting before the next one."""
        return tuple((prompt, i) for i in range(self.repeat) for prompt in self.prompts)


def predicted_name(setting: str, drafter: str) -> str:
    """The name of a live setting among predictions; drafter as its stats say."""
    return setting if setting.startswith("K=") else f"controller, {drafter}"
