"""What can be asked of a loaded pair besides answers: facts, token ids, costs, single rows."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from localspec.control.costs import Costs
from localspec.control.economics import Outlook, look
from localspec.control.measured_costs import MeasuredCosts
from localspec.decoding.teacher_forcing import Position, read_positions
from localspec.errors import CancelledError, InvalidOptionError
from localspec.llama.context import Cancelled, Context
from localspec.session.memory_plan import MemoryPlan
from localspec.session.options import LoadOptions
from localspec.session.pair import Loaded, Pair
from localspec.session.planning import Planner
from localspec.session.recipe import made_by
from localspec.session.session_lock import Exclusive
from localspec.session.template import ChatTemplate, Message, Tool

__all__ = ["Inspected", "Prompt"]

Prompt: TypeAlias = "str | Sequence[int] | Sequence[Message] | npt.NDArray[np.integer[Any]]"


class Inspected:
    """The part of a Session that makes no answers."""

    def __init__(self, target_path: Path, draft_path: Path | None, options: LoadOptions) -> None:
        self._pair = pair = Pair(target_path, draft_path, options)
        self._exclusive = Exclusive(wait=pair.options.when_busy == "wait")
        self._template = ChatTemplate(
            pair.target.model.chat_template,
            pair.target.model.vocabulary,
            pair.target.model.vocabulary.bos_text,
            pair.target.model.vocabulary.eos_text,
        )
        self._measured = MeasuredCosts(
            pair.target, pair.draft, pair.settings, exact=pair.options.exact
        )
        self._planner = Planner(pair, self._measured)

    @property
    def notes(self) -> list[str]:
        """What a person should know about this load."""
        return self._pair.notes

    @property
    def target_path(self) -> Path:
        """The target's file."""
        return self._pair.target_header.path

    @property
    def draft_path(self) -> Path | None:
        """The draft model's file, None without one."""
        header = self._pair.draft_header
        return header.path if header else None

    @property
    def n_ctx(self) -> int:
        """Tokens that the target's context holds."""
        return self._pair.target.n_ctx

    @property
    def n_threads(self) -> int:
        """Threads that decode."""
        return self._pair.n_threads

    @property
    def has_draft_model(self) -> bool:
        """True when a draft model is loaded and can be used."""
        return self._pair.draft is not None

    @property
    def device(self) -> str:
        """Where the target really runs."""
        pair = self._pair
        return f"GPU ({pair.target.model.n_gpu_layers} layers)" if pair.on_gpu else "CPU"

    @property
    def loaded(self) -> Loaded:
        """What is really in use: models, context, threads, cache types."""
        return self._pair.loaded

    @property
    def memory(self) -> MemoryPlan:
        """What was planned before the load: memory for weights, caches and buffers."""
        return self._pair.memory

    @property
    def can_draft(self) -> bool:
        """False when the target's memory cannot take tokens back, so that it runs plain."""
        return self._pair.rollback_refused is None

    @property
    def exact(self) -> bool:
        """True when only batches with the bits of single-token decoding are verified."""
        return self._pair.options.exact

    def exact_sizes(self, on_depth: Callable[[int], None] | None = None) -> frozenset[int]:
        """In an exact session the batch sizes that may be used: probed once, then from disk."""
        with self._alone():
            return self._measured.exact_sizes(on_depth)

    @property
    def costs(self) -> Costs:
        """T(n) and D(n) of this pair: from an earlier load, else measured now, within a second."""
        if self._measured.is_done:
            return self._measured.costs()
        with self._alone():
            return self._measured.costs()

    def plain_seconds(self, depth: int) -> float | None:
        """What one plain decoding step at this depth takes, by measurement; None before any."""
        if not self._measured.is_done:
            return None
        seconds = self._measured.costs().target.seconds(1, depth)
        return seconds if math.isfinite(seconds) else None

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        """The text that the chat template makes of a conversation."""
        return self._template.render(messages, tools)

    def calibrate(self, depth: int = 0) -> None:
        """Measure every size at a depth and keep it. Takes some seconds, more for deep contexts."""
        with self._alone():
            self._measured.calibrate(depth)

    def piece(self, token: int) -> str:
        """The text of one token, for display."""
        return self._target.model.vocabulary.piece(token).decode("utf-8", "replace")

    def outlook(self) -> Outlook | None:
        """Whether the draft model can pay here, in numbers and words; None without one."""
        if self._pair.draft is None or not self.can_draft:
            return None
        return look(self.costs, device="GPU" if self._pair.on_gpu else "CPU")

    @property
    def n_batch(self) -> int:
        """Tokens of one prefill batch."""
        return self._target.n_batch

    def encode(self, prompt: Prompt, *, tools: Sequence[Tool] | None = None) -> list[int]:
        """The token ids that stream() would use for this prompt.

        Raises InvalidOptionError for what is no prompt.
        """
        vocabulary = self._pair.target.model.vocabulary
        given: Any = prompt.tolist() if isinstance(prompt, np.ndarray) else prompt
        is_list = hasattr(given, "__len__") and not isinstance(given, (str, bytes, Mapping))
        if is_list and len(given) and isinstance(given[0], Mapping):
            return self._template.encode(given, tools)
        if tools:
            raise InvalidOptionError("tools go with messages: the chat template tells of them")
        if isinstance(given, str):
            return vocabulary.tokenize(given) if given else []
        if not is_list:
            raise InvalidOptionError("a prompt is text, token ids, or a list of messages")
        try:
            ids = [operator.index(token) for token in given]
        except TypeError:
            raise InvalidOptionError(
                "a prompt is text, a list of token ids, or a list of messages; this list holds "
                f"{next((t for t in given if not hasattr(t, '__index__')), None)!r:.80}"
            ) from None
        vocabulary.require_known(ids, "the prompt")
        return ids

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of token ids; control tokens add nothing, half characters become U+FFFD."""
        vocabulary = self._pair.target.model.vocabulary
        ids = [operator.index(token) for token in token_ids]
        vocabulary.require_known(ids, "the list")
        return b"".join(map(vocabulary.piece, ids)).decode("utf-8", "replace")

    def clear_cache(self) -> None:
        """Forget every evaluated token, so that the next answer starts cold."""
        with self._exclusive:
            self._pair.target.clear()
            if self._planner.draft_cache is not None:
                self._planner.draft_cache.clear()

    def read_positions(self, prompt: Prompt, token_ids: Sequence[int]) -> list[Position]:
        """What target and draft model would have said before each token of an answer.

        Teacher-forced in batches, outside any timing; it takes as long as reading the answer
        twice. The draft's part is None without a draft model.
        """
        prompt_ids = self.encode(prompt)
        ids = [*prompt_ids, *token_ids]
        with self._alone(), self._pair.reading_draft() as draft:
            readable = self._planner.draft_cache.is_readable if self._planner.draft_cache else None
            return list(read_positions(self._target, draft, ids, len(prompt_ids), readable))

    def target_rows(
        self, ids: Sequence[int], batch: Sequence[int]
    ) -> list[npt.NDArray[np.float32]]:
        """The target's logits after each token of `batch`, decoded in one batch behind `ids`.

        Each float32, shape (n_vocab,), a copy. What the cache already holds of `ids` is kept.
        """
        with self._alone():
            target = self._target
            target.keep_prefix(ids)
            target.decode(ids[len(target.ids) :], n_rows=0)
            target.checkpoint()
            rows = [row.copy() for row in target.decode(batch, n_rows=len(batch))]
            target.keep_prefix(ids)
            return rows

    def forget(self) -> None:
        """Forget what was learned about acceptance (not the costs), as after a fresh load."""
        with self._exclusive:
            self._planner.forget()

    @functools.cached_property
    def made_by(self) -> dict[str, Any]:
        """Files, load options, engine: what an answer depends on besides prompt and options."""
        return made_by(self._pair)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Decode outside an answer; cancel() ends it with CancelledError."""
        with self._exclusive:
            self._pair.cancel.clear()
            try:
                yield
            except Cancelled:
                raise CancelledError("cancelled before it was done") from None

    @property
    def _target(self) -> Context:
        return self._pair.target

    @property
    def _draft(self) -> Context | None:
        return self._pair.draft
