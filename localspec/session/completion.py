"""One whole answer: its text, how it came about, and how to make it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.decoding.event_json import as_json
from localspec.decoding.events import Event, Finished, Round, Stats
from localspec.decoding.logprobs import TokenLogprob, logprob_json
from localspec.session.marks import figures, fragment, mark_all
from localspec.session.recipe import Promise, Recipe
from localspec.session.tool_calls import ToolCall, assistant_message, split_tool_calls

__all__ = ["Completion"]


@dataclass(frozen=True, slots=True, repr=False)
class Completion:
    """One whole answer. `stats` has the timings' names: `stats.draft_n`.

    reason: eos, stop, length, context or cancelled. rounds: every round, rejected tokens with p
    and q included. promise: how far the answer comes again. recipe: all that this takes.
    spelled: the text with the markers that token types hide, for tool calls.
    logprobs, prompt_logprobs, grammar_complete: as in Finished.
    In a notebook it shows accepted and rejected tokens.
    """

    text: str
    token_ids: tuple[int, ...]
    reason: str
    stats: Stats
    rounds: tuple[Round, ...] = ()
    promise: Promise | None = None
    recipe: Recipe | None = None
    spelled: str = field(default="", compare=False)
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    grammar_complete: bool | None = None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Calls in the style of Hermes and Qwen2.5, `<tool_call>` around JSON; others are text."""
        return split_tool_calls(self.spelled or self.text).calls

    @property
    def message(self) -> dict[str, Any]:
        """The answer as an OpenAI-style message, to be appended to the conversation."""
        return assistant_message(split_tool_calls(self.spelled or self.text), self.text)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every token of every round as columns of one length n, ready for a data frame.

        round int32; id int32; p, q, p_raw, q_raw float64 (nan where nobody said); verdict,
        source and text as str objects.
        """
        tokens = [(r.index, t) for r in self.rounds for t in r.tokens]

        def floats(name: str) -> npt.NDArray[np.float64]:
            found = (getattr(token, name) for _, token in tokens)
            return np.array([np.nan if x is None else x for x in found], np.float64)

        def texts(name: str) -> npt.NDArray[np.object_]:
            return np.array([getattr(token, name) for _, token in tokens], object)

        return {
            "round": np.array([index for index, _ in tokens], np.int32),
            "id": np.array([token.id for _, token in tokens], np.int32),
            **{name: floats(name) for name in ("p", "q", "p_raw", "q_raw")},
            **{name: texts(name) for name in ("verdict", "source", "text")},
        }

    def to_dict(self) -> dict[str, Any]:
        """Only what JSON can say, every round included."""
        promise = self.promise
        return {
            "type": "completion",
            "text": self.text,
            "token_ids": list(self.token_ids),
            "reason": self.reason,
            "seed": self.stats.seed,
            "verifier": self.stats.verifier,
            "drafter": self.stats.drafter,
            "notes": list(self.stats.notes),
            "timings": self.stats.timings(),
            "promise": {"kind": promise.kind, "words": promise.words} if promise else None,
            "recipe": self.recipe.to_dict() if self.recipe else None,
            "rounds": [as_json(round_) for round_ in self.rounds],
            "logprobs": _logprobs(self.logprobs),
            "prompt_logprobs": _logprobs(self.prompt_logprobs),
            "grammar_complete": self.grammar_complete,
        }

    def to_json(self) -> str:
        """One line."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "…"
        rate = self.stats.acceptance_rate
        drafts = f", acceptance rate {rate:.0%}" if rate is not None else ""
        return f"Completion({shown!r}, {len(self.token_ids)} tokens, {self.reason}{drafts})"

    def _repr_html_(self) -> str:
        below = figures(self.stats.timings(), self.reason)
        return fragment(mark_all(self.rounds), self.text, below)


def _logprobs(entries: tuple[TokenLogprob, ...] | None) -> list[dict[str, Any]] | None:
    return None if entries is None else [logprob_json(entry) for entry in entries]


def fold(events: Iterator[Event]) -> tuple[Finished, tuple[Round, ...]]:
    """The end of an answer and its rounds."""
    rounds = []
    for event in events:
        if isinstance(event, Round):
            rounds.append(event)
        elif isinstance(event, Finished):
            return event, tuple(rounds)
    raise AssertionError("a stream ends with Finished")
