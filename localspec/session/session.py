"""The object that people hold: a target, perhaps a draft, and answers from them."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.decoding.events import Event, Finished, Stats
from localspec.errors import InvalidOptionError
from localspec.llama.context import Cancelled
from localspec.models.references import pair_draft, resolve
from localspec.session.async_answers import (
    AsyncEvents,
    ThreadedAnswer,
    decoding_thread,
    whole_answer,
)
from localspec.session.batch import complete_many
from localspec.session.batch_results import Answered
from localspec.session.branch import Branch
from localspec.session.completion import Completion, fold
from localspec.session.inspection import Inspected, Prompt
from localspec.session.options import LoadOptions, Options, parse
from localspec.session.plain_data import options_from_dict, to_dict
from localspec.session.recipe import Recipe, recipe_of
from localspec.session.saved_state import restore_state, save_state
from localspec.session.session_lock import Released
from localspec.session.template import Message, Tool
from localspec.session.tool_calls import spelled

__all__ = ["Completion", "Prompt", "Session", "load"]

DEFAULT_TARGET = "default"


@dataclass(frozen=True, slots=True)
class _Begun:
    """An answer that holds the session: its events, and what its recipe needs."""

    events: Iterator[Event]
    ids: list[int]
    options: Options
    verifier: str
    drafter: str
    cold: bool
    notes: tuple[str, ...]


class Session(Inspected):
    """A loaded pair. Use it as a context manager, or call close().

    One generation at a time: a second caller gets BusyError, or waits for its turn with
    when_busy="wait". What was evaluated for one prompt
    is reused for the next that begins with the same tokens, and what was measured and learned
    about the pair serves the next answer.

    On a CPU, decode from one thread of the process: every live thread that has decoded keeps
    OpenMP workers of its own, and beside a second set all of them stop waiting actively (15 % of
    the speed of plain decoding and 25 % with drafts, measured on two cores). Plain calls decode
    in the thread that makes them; astream, acomplete and achat of all sessions share one thread,
    so that a program should use either the plain calls or the asynchronous ones.

    drafter, controller: for every call that names none; see Options.
    """

    def __init__(
        self,
        target_path: str | Path,
        draft_path: str | Path | None = None,
        options: LoadOptions | None = None,
        *,
        drafter: Any = None,
        controller: Any = None,
    ) -> None:
        draft = Path(draft_path) if draft_path is not None else None
        super().__init__(Path(target_path), draft, options or LoadOptions())
        self._drafter, self._controller = drafter, controller
        self._threaded: weakref.WeakSet[ThreadedAnswer] = weakref.WeakSet()
        self._n_begun = 0
        self._n_begun_alike = -1

    def stream(
        self, prompt: Prompt, *, tools: Sequence[Tool] | None = None, **options: Any
    ) -> Iterator[Event]:
        """Events of one answer: Prefill…, Round…, Finished.

        prompt: text (special markers in it are plain text), token ids (used exactly as given;
        a list, or an integer array of shape (n,)), or OpenAI-style messages (the chat template
        is applied). tools: functions that the model may call, for messages. options: see Options.
        Close the generator, or call cancel() from another thread, to stop early. Errors of the
        prompt or the options are raised here, not at the first event.
        """
        return self._begin(prompt, tools, options).events

    def complete(
        self, prompt: Prompt, *, tools: Sequence[Tool] | None = None, **options: Any
    ) -> Completion:
        """One whole answer; arguments as for stream()."""
        begun = self._begin(prompt, tools, options)
        return self._completion(begun, begun.events)

    def chat(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] | None = None, **options: Any
    ) -> Completion:
        """Answer a conversation: messages are {"role": ..., "content": ...}.

        Append `result.message` and go on. With tools, `result.tool_calls` has what the model
        calls; answer each with {"role": "tool", "content": ...}.
        """
        return self.complete(_messages(messages), tools=tools, **options)

    def astream(
        self, prompt: Prompt, *, tools: Sequence[Tool] | None = None, **options: Any
    ) -> AsyncEvents:
        """The same events for `async for`; see AsyncEvents on leaving early and on slow readers.

        Decoding takes place in the one thread of this process that is made for it. Until the
        answer is finished or left, other calls of this session raise BusyError.
        """
        answer = self._in_thread(lambda: self.stream(prompt, tools=tools, **options))
        return AsyncEvents(answer, decoding_thread)

    async def acomplete(
        self, prompt: Prompt, *, tools: Sequence[Tool] | None = None, **options: Any
    ) -> Completion:
        """complete() without blocking the event loop.

        Calls wait for each other in the order in which they were made; cancelling the task stops
        the decode, and returns when it has stopped.
        """
        begun: list[_Begun] = []

        def begin() -> Iterator[Event]:
            begun.append(self._begin(prompt, tools, options))
            return begun[0].events

        return await whole_answer(
            self._in_thread(begin),
            lambda events: self._completion(begun[0], events),
            decoding_thread,
        )

    async def achat(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] | None = None, **options: Any
    ) -> Completion:
        """chat() without blocking the event loop; as acomplete()."""
        return await self.acomplete(_messages(messages), tools=tools, **options)

    def complete_many(
        self,
        prompts: Iterable[Prompt | Mapping[str, Any]],
        *,
        out: str | Path | None = None,
        progress: bool | Callable[[int, int | None], None] = False,
        seed: int | None = None,
        retry_errors: bool = False,
        **options: Any,
    ) -> list[Answered]:
        """Answer every prompt; the results stand in the order of the prompts.

        prompts: any iterable of prompts, or of {"id": …, "prompt": …} and {"id": …,
        "messages": …}; without an id the index is one. A named error of one prompt is recorded
        and the others go on. seed: each prompt's own is made from it and the index (None draws
        one), and each begins as from a cold cache, so that no result depends on order or resuming.
        out: a JSON-lines file. The same call goes on where an earlier one was stopped, however it
        was; ResultsFileError tells when options, models or prompts are others. retry_errors:
        prompts that ran into an error are asked again. progress: True draws a bar on stderr; a
        function is called with (done, total).
        """
        parsed = parse(Options, self._with_defaults(options))
        described = {"options": to_dict(parsed), "made_by": self.made_by}
        described["options"].pop("seed")
        return complete_many(
            self,
            prompts,
            options=options,
            seed=seed,
            described=described,
            out=out,
            progress=progress,
            retry_errors=retry_errors,
        )

    def rerun(self, recipe: Recipe | Mapping[str, Any] | str) -> Completion:
        """Make an answer again from its recipe (or the recipe's dict or JSON), from a cold cache.

        How far it is the same, its `promise` says. Raises InvalidOptionError when this session
        has other files, load options or engine than the one that made it.
        """
        known = recipe if isinstance(recipe, Recipe) else Recipe.from_dict(recipe)
        different = known.differences(self.made_by)
        if different:
            raise InvalidOptionError(
                f"this session is not as the one that made the answer ({'; '.join(different)})"
            )
        self.clear_cache()
        return self.complete(list(known.prompt_ids), **options_from_dict(known.options))

    def branch(self, prompt: Prompt = "") -> Branch:
        """A text that grows and forks; see Branch."""
        vocabulary = self._pair.target.model.vocabulary
        return Branch(
            self.complete,
            lambda text: vocabulary.tokenize(text, add_bos=False),
            lambda ids: b"".join(map(vocabulary.piece, ids)).decode("utf-8", "replace"),
            tuple(self.encode(prompt)),
        )

    def save_state(self, path: str | Path) -> None:
        """Write what is evaluated now, of both models, to a file.

        It is as large as the cache in use (for the default pair 41 kB a token). Raises
        StateFileError and DiskSpaceError.
        """
        with self._alone():
            save_state(Path(path).expanduser(), self.made_by, self._pair, self._planner.draft_cache)

    def restore_state(self, path: str | Path) -> tuple[int, ...]:
        """Read it back: the token ids that need no evaluation now.

        Raises StateFileError for a file that is damaged, foreign, of another model, engine or
        cache type, or too long for this context; the cache is then as it was, or empty.
        """
        with self._alone():
            return restore_state(
                Path(path).expanduser(), self.made_by, self._pair, self._planner.draft_cache
            )

    def cancel(self, *, waiting: bool = False) -> None:
        """Stop the running answer; callable from any thread. It finishes as `cancelled`.

        waiting: those who wait for their turn (when_busy="wait") get CancelledError too.
        """
        if waiting:
            self._exclusive.lock.send_away()
        if self._exclusive.lock.locked():
            self._pair.cancel.set()

    def begin_alike(self, ids: Sequence[int], n_shared: int) -> None:
        """Leave in the caches only what a cold run over `ids` would have, to the bit.

        n_shared: leading tokens that the answer before this one evaluated in whole batches.
        """
        with self._exclusive:
            if self._n_begun != self._n_begun_alike + 1:
                n_shared = 0  # something else was asked in between
            self._n_begun_alike = self._n_begun
            self._target.keep_prefix(list(ids[:n_shared]))
            if self._planner.draft_cache is not None and not self.exact:
                self._planner.draft_cache.clear()

    def close(self) -> None:
        """Free both models and keep the costs for the next load.

        Asynchronous answers are stopped first, and who waits for a turn gets CancelledError; call
        it when nothing else runs.
        """
        self._exclusive.lock.send_away()
        open_answers = list(self._threaded)
        for answer in open_answers:
            answer.stop()
        if open_answers and not decoding_thread.is_current():
            for answer in open_answers:
                decoding_thread.submit(answer.close).result()
        self._measured.keep()
        self._pair.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(
        self, prompt: Prompt, tools: Sequence[Tool] | None, options: Mapping[str, Any]
    ) -> _Begun:
        parsed = parse(Options, self._with_defaults(options))
        ids = self.encode(prompt, tools=tools)
        notes: tuple[str, ...] = ()
        if tools and not self._template.writes_tool_calls:
            notes = ("tool calls in this model's own style are left as text",)
        self._exclusive.acquire()
        try:
            self._n_begun += 1
            self._pair.cancel.clear()
            engine = self._planner.engine(parsed)
            engine.require_prompt(ids)
            cold = self._planner.is_cold(ids)
            known = engine.stats
        except Cancelled:  # while the costs were measured
            none = Released(_cancelled(), self._exclusive.lock)
            return _Begun(none, ids, parsed, "match", "none", cold=False, notes=notes)
        except BaseException:
            self._exclusive.lock.release()
            raise
        events = Released(engine.run(ids), self._exclusive.lock)
        return _Begun(events, ids, parsed, known.verifier, known.drafter, cold, notes)

    def _with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(options)
        if self._drafter is not None:
            found.setdefault("drafter", self._drafter)
        if self._controller is not None and found.get("n_draft") is None:
            found.setdefault("controller", self._controller)
        return found

    def _in_thread(self, begin: Callable[[], Iterator[Event]]) -> ThreadedAnswer:
        answer = ThreadedAnswer(begin, self.cancel)
        self._threaded.add(answer)
        return answer

    def _completion(self, begun: _Begun, events: Iterator[Event]) -> Completion:
        finished, rounds = fold(events)
        stats = finished.stats
        if begun.notes:
            stats = dataclasses.replace(stats, notes=(*stats.notes, *begun.notes))
        recipe, promise = recipe_of(
            begun.ids,
            begun.options,
            stats,
            self.made_by,
            verifier=begun.verifier,
            drafter=begun.drafter,
            exact=self.exact,
            cold=begun.cold,
        )
        return Completion(
            finished.text,
            finished.token_ids,
            finished.reason,
            stats,
            rounds,
            promise,
            recipe,
            spelled(finished.token_ids, self._pair.target.model.vocabulary),
            finished.logprobs,
            finished.prompt_logprobs,
            finished.grammar_complete,
        )


def _messages(messages: Any) -> Any:
    if isinstance(messages, (str, bytes)):
        raise InvalidOptionError("chat takes a list of messages; use complete for plain text")
    return messages


def _cancelled() -> Iterator[Event]:
    yield Finished("cancelled", "", (), Stats())


def load(
    target: str | Path = DEFAULT_TARGET,
    draft: str | Path | None = "auto",
    *,
    drafter: Any = None,
    controller: Any = None,
    **options: Any,
) -> Session:
    """Load a target and a draft model, downloading them when they are not here yet.

    target, draft: a path, a catalog name, or `user/repo[:quant]`. draft "auto" takes the draft
    that belongs to a catalog pair, and none otherwise; None loads no draft model. drafter,
    controller: what answers use that name none (see Options). options: see
    LoadOptions. Raises a LocalspecError that says what to do next.
    """
    parsed = parse(LoadOptions, options)
    wanted = pair_draft(str(target)) if draft == "auto" else draft
    target_path = resolve(str(target), role="target")
    draft_path = resolve(str(wanted), role="draft") if wanted is not None else None
    return Session(target_path, draft_path, parsed, drafter=drafter, controller=controller)
