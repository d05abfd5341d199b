"""The object that people hold: a target, perhaps a draft, and answers from them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from localspec.chat.template import ChatTemplate, Message
from localspec.errors import BusyError, InvalidOptionError
from localspec.library.gguf_header import GGUFHeader, read_header, require_language_model
from localspec.library.references import pair_draft, resolve
from localspec.library.vocabulary_match import compare_vocabularies
from localspec.llama.context import CancelFlag, Context
from localspec.llama.devices import physical_cores, supports_gpu_offload
from localspec.llama.model import Model
from localspec.options import DEFAULT_N_CTX, LoadOptions, Options, parse
from localspec.sampling.seeds import resolve_seed, sequential_uniforms
from localspec.speculation.controller import FixedController
from localspec.speculation.drafters import Drafter, ModelDrafter, NgramDrafter
from localspec.speculation.engine import Engine, Limits
from localspec.speculation.events import Event, Finished, Stats

__all__ = ["Completion", "Prompt", "Session", "load"]

Prompt: TypeAlias = "str | Sequence[int] | Sequence[Message]"

DEFAULT_TARGET = "default"
_N_DRAFT_GPU = 4
_N_DRAFT_CPU = 2  # a batch of 3 is bit-identical to single steps on the usual quants


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole answer. `stats` has the timings' names: `stats.draft_n`."""

    text: str
    token_ids: tuple[int, ...]
    reason: str
    stats: Stats


class Session:
    """A loaded pair. Use it as a context manager, or call close().

    One generation at a time: a second caller gets BusyError. What was evaluated for one prompt
    is reused for the next that begins with the same tokens.
    """

    def __init__(
        self,
        target_path: Path,
        draft_path: Path | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        options = options or LoadOptions()
        self.target_header = _language_model(target_path, "target")
        self.draft_header = _language_model(draft_path, "draft") if draft_path else None
        self.notes: list[str] = []
        self._foreign_ids: frozenset[int] = frozenset()
        if self.draft_header is not None:
            matched = compare_vocabularies(self.target_header, self.draft_header)
            self._foreign_ids = matched.differing_ids
            if matched.differing_ids:
                self.notes.append(
                    f"{len(matched.differing_ids)} token ids differ between the vocabularies; "
                    "drafts end there"
                )
        self.n_threads = options.n_threads or physical_cores()
        self._cancel = CancelFlag()
        self._lock = threading.Lock()
        self._closers: list[Any] = []
        try:
            self._load(options)
        except BaseException:
            self.close()
            raise

    @property
    def n_ctx(self) -> int:
        """Tokens that the target's context holds."""
        return self._target.n_ctx

    @property
    def has_draft_model(self) -> bool:
        """True when a draft model is loaded and used."""
        return self._draft is not None

    @property
    def device(self) -> str:
        """Where the target really runs."""
        return f"GPU ({self._target.model.n_gpu_layers} layers)" if self._on_gpu else "CPU"

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Event]:
        """Events of one answer: Prefill…, Round…, Finished.

        prompt: text (special markers in it are plain text), token ids (used exactly as given),
        or messages (the chat template is applied). Close the generator, or call cancel() from
        another thread, to stop early. Errors of the prompt or the options are raised here, not
        at the first event.
        """
        parsed = parse(Options, options)
        if not self._lock.acquire(blocking=False):
            raise BusyError("this session is generating: wait, or load a second one")
        try:
            self._cancel.clear()
            ids = self.encode(prompt)
            engine = self._engine(parsed)
            engine.require_prompt(ids)
        except BaseException:
            self._lock.release()
            raise
        return _Released(engine.run(ids), self._lock)

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

    def cancel(self) -> None:
        """Stop the running answer; callable from any thread. It finishes as `cancelled`."""
        if self._lock.locked():
            self._cancel.set()

    def encode(self, prompt: Prompt) -> list[int]:
        """The token ids that stream() would use for this prompt."""
        vocabulary = self._target.model.vocabulary
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
        with self._lock:
            self._target.clear()
            if self._draft is not None:
                self._draft.clear()

    def close(self) -> None:
        """Free both models. Call it when no generation runs."""
        while self._closers:
            self._closers.pop().close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self, options: LoadOptions) -> None:
        target = self._keep(
            Model(
                self.target_header.path,
                n_gpu_layers=options.n_gpu_layers,
                main_gpu=options.main_gpu,
                tensor_split=options.tensor_split,
            )
        )
        self._on_gpu = target.n_gpu_layers > 0
        if max(options.n_gpu_layers, options.n_gpu_layers_draft) > 0 and not supports_gpu_offload():
            self.notes.append(
                "this build has no GPU support, so n_gpu_layers is not in use; "
                "`localspec doctor` says how to rebuild"
            )
        self._target = self._context(target, options, max_rows=64)
        self._template = ChatTemplate(
            target.chat_template,
            target.vocabulary,
            target.vocabulary.bos_text,
            target.vocabulary.eos_text,
        )
        self._draft: Context | None = None
        if self.draft_header is None:
            return
        draft = self._keep(
            Model(
                self.draft_header.path,
                n_gpu_layers=options.n_gpu_layers_draft,
                main_gpu=options.main_gpu,
                tensor_split=options.tensor_split,
            )
        )
        if draft.rollback_refused:
            self.notes.append(f"the draft model is not used: {draft.rollback_refused}")
        else:
            self._draft = self._context(draft, options, max_rows=1)
            if self._draft.n_ctx != self._target.n_ctx:
                self.notes.append(
                    f"the draft's context is {self._draft.n_ctx:,} tokens, the target's "
                    f"{self._target.n_ctx:,}: drafting ends where the shorter one is full"
                )

    def _context(self, model: Model, options: LoadOptions, *, max_rows: int) -> Context:
        n_ctx = options.n_ctx or min(DEFAULT_N_CTX, model.n_ctx_train or DEFAULT_N_CTX)
        if model.n_ctx_train and n_ctx > model.n_ctx_train:
            self.notes.append(
                f"n_ctx {n_ctx:,} is more than the {model.n_ctx_train:,} tokens that "
                f"{model.path.name} was trained for: expect worse text beyond"
            )
        context: Context = self._keep(
            Context(
                model,
                n_ctx=n_ctx,
                n_batch=options.n_batch,
                max_rows=max_rows,
                n_threads=self.n_threads,
                n_threads_batch=options.n_threads_batch,
                flash_attn=options.flash_attn,
                type_k=options.type_k,
                type_v=options.type_v,
                cancel=self._cancel,
            )
        )
        return context

    def _keep(self, closer: Any) -> Any:
        self._closers.append(closer)
        return closer

    def _engine(self, options: Options) -> Engine:
        notes = list(self.notes)
        params = options.sampling()
        seed = resolve_seed(options.seed)
        rng = sequential_uniforms(seed)
        kind = self._drafter_kind(options, notes)
        verifier = _verifier(options, kind, greedy=params.greedy)
        drafter: Drafter | None = None
        if kind == "model" and self._draft is not None:
            drafter = ModelDrafter(
                self._draft,
                params,
                n_vocab_target=self._target.n_vocab,
                foreign_ids=self._foreign_ids,
                rng=None if verifier == "match" else rng,
            )
        elif kind == "ngram":
            drafter = NgramDrafter()
        n_draft = options.n_draft
        if n_draft is None:
            n_draft = _N_DRAFT_GPU if self._on_gpu else _N_DRAFT_CPU
        most = min(self._target.max_rows, self._target.n_batch) - 1
        if n_draft > most:
            notes.append(f"n_draft {n_draft} is cut to {most}, the rows of one verification")
        return Engine(
            self._target,
            drafter,
            FixedController(n_draft),
            params,
            verifier=verifier,
            seed=seed,
            rng=rng,
            limits=self._limits(options),
            notes=notes,
        )

    def _drafter_kind(self, options: Options, notes: list[str]) -> str:
        """Which drafter is used; a note says why when it is not the one asked for."""
        kind = options.drafter
        if kind == "auto":
            kind = "model" if self._draft is not None else "ngram"
        if kind == "model" and self._draft is None:
            raise InvalidOptionError(
                "drafter is model, but no draft model is in use: "
                + ("; ".join(self.notes) or "load one with draft=…, or choose ngram or none")
            )
        refused = self._target.model.rollback_refused
        if kind != "none" and refused:
            notes.append(f"drafting is off for {self._target.model.path.name}: {refused}")
            return "none"
        return kind

    def _limits(self, options: Options) -> Limits:
        vocabulary = self._target.model.vocabulary
        ids = {text: vocabulary.special_token(text) for text in options.stop}
        budget = options.max_tokens
        return Limits(
            max_tokens=self.n_ctx + 1 if budget is None else budget,
            stop=options.stop,
            stop_ids=frozenset(token for token in ids.values() if token is not None),
        )


class _Released:
    """The events of one answer, giving the session back when they end, however they end."""

    def __init__(self, events: Iterator[Event], lock: threading.Lock) -> None:
        self._events: Any = events
        self._lock: threading.Lock | None = lock

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        try:
            event: Event = next(self._events)
        except BaseException:
            self._release()
            raise
        return event

    def close(self) -> None:
        """Stop early; both caches are cut to what was committed."""
        try:
            self._events.close()
        finally:
            self._release()

    def __del__(self) -> None:
        self.close()

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


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


def _language_model(path: Path, role: str) -> GGUFHeader:
    header = read_header(path)
    require_language_model(header, role)
    return header


def _verifier(options: Options, kind: str, *, greedy: bool) -> str:
    if options.verifier != "auto":
        return options.verifier
    if greedy or options.seed not in (None, -1):
        return "match"
    return "block" if kind == "model" else "rejection"
