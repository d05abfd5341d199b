"""The object that people hold: a target, perhaps a draft, and answers from them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from localspec.chat.template import ChatTemplate, Message
from localspec.errors import CancelledError, InvalidOptionError
from localspec.lending import Exclusive, Released
from localspec.library.references import pair_draft, resolve
from localspec.llama.context import Cancelled, Context
from localspec.options import LoadOptions, Options, parse
from localspec.pair import Loaded, Pair
from localspec.planning import Planner
from localspec.pricing import Pricing
from localspec.speculation.costs import Costs
from localspec.speculation.economics import Outlook, look
from localspec.speculation.events import Event, Finished, Stats
from localspec.speculation.teacher import Position, read_positions

__all__ = ["Completion", "Prompt", "Session", "load"]

Prompt: TypeAlias = "str | Sequence[int] | Sequence[Message]"

DEFAULT_TARGET = "default"


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole answer. `stats` has the timings' names: `stats.draft_n`."""

    text: str
    token_ids: tuple[int, ...]
    reason: str
    stats: Stats


class Session:
    """A loaded pair. Use it as a context manager, or call close().

    One generation at a time: a second caller gets BusyError, or waits for its turn with
    when_busy="wait". What was evaluated for one prompt
    is reused for the next that begins with the same tokens, and what was measured and learned
    about the pair serves the next answer.

    On a CPU, decode from one thread of the process: every live thread that has decoded keeps
    OpenMP workers of its own, and beside a second set all of them stop waiting actively (15 % of
    the speed of plain decoding and 25 % with drafts, measured on two cores).
    """

    def __init__(
        self,
        target_path: Path,
        draft_path: Path | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        self._pair = pair = Pair(target_path, draft_path, options or LoadOptions())
        self._exclusive = Exclusive(wait=pair.options.when_busy == "wait")
        self._template = ChatTemplate(
            pair.target.model.chat_template,
            pair.target.model.vocabulary,
            pair.target.model.vocabulary.bos_text,
            pair.target.model.vocabulary.eos_text,
        )
        self._pricing = Pricing(pair)
        self._planner = Planner(pair, self._pricing)

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
            return self._pricing.exact_sizes(on_depth)

    @property
    def costs(self) -> Costs:
        """T(n) and D(n) of this pair: from an earlier load, else measured now, within a second."""
        if self._pricing.is_done:
            return self._pricing.costs()
        with self._alone():
            return self._pricing.costs()

    def plain_seconds(self, depth: int) -> float | None:
        """What one plain decoding step at this depth takes, by measurement; None before any."""
        if not self._pricing.is_done:
            return None
        seconds = self._pricing.costs().target.seconds(1, depth)
        return seconds if math.isfinite(seconds) else None

    def render(self, messages: Sequence[Message]) -> str:
        """The text that the chat template makes of a conversation."""
        return self._template.render(messages)

    def calibrate(self, depth: int = 0) -> None:
        """Measure every size at a depth and keep it. Takes some seconds, more for deep contexts."""
        with self._alone():
            self._pricing.calibrate(depth)

    def piece(self, token: int) -> str:
        """The text of one token, for display."""
        return self._target.model.vocabulary.piece(token).decode("utf-8", "replace")

    def outlook(self) -> Outlook | None:
        """Whether the draft model can pay here, in numbers and words; None without one."""
        if self._pair.draft is None or not self.can_draft:
            return None
        return look(self.costs)

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Event]:
        """Events of one answer: Prefill…, Round…, Finished.

        prompt: text (special markers in it are plain text), token ids (used exactly as given),
        or messages (the chat template is applied). Close the generator, or call cancel() from
        another thread, to stop early. Errors of the prompt or the options are raised here, not
        at the first event.
        """
        parsed = parse(Options, options)
        ids = self.encode(prompt)
        self._exclusive.acquire()
        try:
            self._pair.cancel.clear()
            engine = self._planner.engine(parsed)
            engine.require_prompt(ids)
        except Cancelled:  # while the costs were measured
            return Released(_cancelled(), self._exclusive.lock)
        except BaseException:
            self._exclusive.lock.release()
            raise
        return Released(engine.run(ids), self._exclusive.lock)

    def complete(self, prompt: Prompt, **options: Any) -> Completion:
        """One whole answer; arguments as for stream()."""
        for event in self.stream(prompt, **options):
            if isinstance(event, Finished):
                return Completion(event.text, event.token_ids, event.reason, event.stats)
        raise AssertionError("a stream ends with Finished")

    def chat(self, messages: Sequence[Message], **options: Any) -> Completion:
        """Answer a conversation: messages are {"role": ..., "content": ...}."""
        given: Any = messages
        if isinstance(given, (str, bytes)):
            raise InvalidOptionError("chat takes a list of messages; use complete for plain text")
        return self.complete(messages, **options)

    def cancel(self, *, waiting: bool = False) -> None:
        """Stop the running answer; callable from any thread. It finishes as `cancelled`.

        waiting: those who wait for their turn (when_busy="wait") get CancelledError too.
        """
        if waiting:
            self._exclusive.lock.send_away()
        if self._exclusive.lock.locked():
            self._pair.cancel.set()

    def encode(self, prompt: Prompt) -> list[int]:
        """The token ids that stream() would use for this prompt."""
        vocabulary = self._pair.target.model.vocabulary
        if isinstance(prompt, str):
            return vocabulary.tokenize(prompt) if prompt else []
        if isinstance(prompt, (bytes, dict)) or not hasattr(prompt, "__len__"):
            raise InvalidOptionError("a prompt is text, token ids, or a list of messages")
        if len(prompt) and not hasattr(prompt[0], "__index__"):
            return self._template.encode(prompt)  # type: ignore[arg-type]
        ids = [int(token) for token in prompt]  # type: ignore[arg-type]
        vocabulary.require_known(ids, "the prompt")
        return ids

    def clear_cache(self) -> None:
        """Forget every evaluated token, so that the next answer starts cold."""
        with self._exclusive:
            self._pair.target.clear()
            if self._pair.draft is not None:
                self._pair.draft.clear()

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

    def close(self) -> None:
        """Free both models and keep the costs for the next load. Call it when nothing runs.

        Who waits for a turn gets CancelledError.
        """
        self._exclusive.lock.send_away()
        self._pricing.keep()
        self._pair.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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


def _cancelled() -> Iterator[Event]:
    yield Finished("cancelled", "", (), Stats())


def load(
    target: str | Path = DEFAULT_TARGET, draft: str | Path | None = "auto", **options: Any
) -> Session:
    """Load a target and a draft model, downloading them when they are not here yet.

    target, draft: a path, a catalog name, or `user/repo[:quant]`. draft "auto" takes the draft
    that belongs to a catalog pair, and none otherwise; None loads no draft model. options: see
    LoadOptions. Raises a LocalspecError that says what to do next.
    """
    parsed = parse(LoadOptions, options)
    wanted = pair_draft(str(target)) if draft == "auto" else draft
    target_path = resolve(str(target), role="target")
    draft_path = resolve(str(wanted), role="draft") if wanted is not None else None
    return Session(target_path, draft_path, parsed)
