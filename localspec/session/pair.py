"""A target and perhaps a draft model, loaded: weights, contexts, and what must be said about them.

Knows nothing of prompts, sampling or rounds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localspec.gguf.footprint import Setting
from localspec.gguf.header import GGUFHeader
from localspec.gguf.vocabulary_match import compare_vocabularies
from localspec.llama.context import CancelFlag, Context, whole_n_ctx
from localspec.llama.devices import engine_identity, physical_cores, supports_gpu_offload
from localspec.llama.memory import Machine, this_machine
from localspec.llama.model import Model
from localspec.llama.native import cache_type
from localspec.llama.probe import vetted_header
from localspec.llama.rollback import rollback_refused
from localspec.session.memory_plan import MemoryPlan, Wanted, plan_memory
from localspec.session.options import DEFAULT_N_CTX, LoadOptions

__all__ = ["Loaded", "Pair", "plan_pair"]

_TARGET_ROWS = 64
_CACHE = "f16"
_EXACT_CACHE = "bf16"  # the only 16-bit type whose attention does not split the range for n = 1


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is really in use, whatever was asked for. Sizes of files in bytes, n_* in tokens.

    model_type: architecture, size and quant in llama.cpp's words. n_gpu_layers: 0 on a CPU.
    The draft's are None without a draft model in use.
    """

    model_type: str
    model_size: int
    model_n_params: int
    n_gpu_layers: int
    draft_type: str | None
    draft_size: int | None
    draft_n_gpu_layers: int | None
    n_ctx: int
    n_batch: int
    n_threads: int
    flash_attn: str
    type_k: str
    type_v: str


class Pair:
    """Loaded models and their contexts; close() frees them.

    notes: what a person should know about this load. draft is None without a draft model, when
    its memory cannot take tokens back, and when there is no room for it; rollback_refused says why
    the target's cannot, None when it can. memory: what was planned before the load. Raises a
    LocalspecError for files that do not fit.
    """

    def __init__(self, target_path: Path, draft_path: Path | None, options: LoadOptions) -> None:
        self.options = options
        self.notes: list[str] = []
        self.target_header = vetted_header(target_path, "target", self.notes)
        self.draft_header = (
            vetted_header(draft_path, "draft", self.notes) if draft_path is not None else None
        )
        self.foreign_ids: frozenset[int] = frozenset()
        if self.draft_header is not None:
            if draft_path is not None and draft_path.resolve() == target_path.resolve():
                self.notes.append("the draft is the target's own file: it cannot be faster")
            matched = compare_vocabularies(self.target_header, self.draft_header)
            self.foreign_ids = matched.differing_ids
            if matched.differing_ids:
                self.notes.append(
                    f"{len(matched.differing_ids)} token ids differ between the vocabularies; "
                    "drafts end there"
                )
        self.memory = plan_pair(self.target_header, self.draft_header, options)
        self.notes += self.memory.notes
        if self.memory.draft is None:
            self.draft_header = None
        self.n_threads = options.n_threads or physical_cores()
        self.cancel = CancelFlag()
        self._closers: list[Any] = []
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    @property
    def on_gpu(self) -> bool:
        """True when layers of the target are on a GPU."""
        return self.target.model.n_gpu_layers > 0

    @property
    def loaded(self) -> Loaded:
        """For records of what was run."""
        target, draft, draft_header = self.target, self.draft, self.draft_header
        if draft is None:
            draft_header = None
        return Loaded(
            model_type=target.model.description,
            model_size=self.target_header.total_size_bytes,
            model_n_params=self.target_header.n_params,
            n_gpu_layers=target.model.n_gpu_layers,
            draft_type=draft.model.description if draft else None,
            draft_size=draft_header.total_size_bytes if draft_header else None,
            draft_n_gpu_layers=draft.model.n_gpu_layers if draft else None,
            n_ctx=target.n_ctx,
            n_batch=target.n_batch,
            n_threads=self.n_threads,
            flash_attn=self.options.flash_attn,
            type_k=target.type_k,
            type_v=target.type_v,
        )

    def close(self) -> None:
        """Free contexts and models. Call it when nothing decodes."""
        while self._closers:
            self._closers.pop().close()

    @contextlib.contextmanager
    def reading_draft(self) -> Iterator[Context | None]:
        """A second context over the draft model that returns as many rows as the target's."""
        if self.draft is None:
            yield None
            return
        context = self._context(
            self.draft.model, _CACHE, max_rows=_TARGET_ROWS, n_ctx=self.draft.n_ctx
        )
        try:
            yield context
        finally:
            self._closers.remove(context)
            context.close()

    def settings(self, context: Context) -> dict[str, Any]:
        """What speed and bits depend on besides the file: a key for what was measured."""
        options = self.options
        return {
            "engine": list(engine_identity()),
            "n_gpu_layers": context.model.n_gpu_layers,
            "main_gpu": options.main_gpu,
            "tensor_split": list(options.tensor_split or ()),
            "n_threads": self.n_threads,
            "n_threads_batch": options.n_threads_batch or self.n_threads,
            "n_batch": context.n_batch,
            "flash_attn": options.flash_attn,
            "type_k": context.type_k,
            "type_v": context.type_v,
        }

    def _load(self) -> None:
        options = self.options
        if max(options.n_gpu_layers, options.n_gpu_layers_draft) > 0 and not supports_gpu_offload():
            self.notes.append(
                "this build has no GPU support, so n_gpu_layers is not in use; "
                "`localspec doctor` says how to rebuild"
            )
        target = self._model(self.target_header, self.memory.n_gpu_layers)
        self.target = self._context(
            target, _target_cache(options), max_rows=_TARGET_ROWS, n_ctx=self.memory.n_ctx
        )
        if options.n_ctx is not None and options.n_ctx < self.target.n_ctx == self.memory.n_ctx:
            self.notes.append(
                f"the context has {self.target.n_ctx:,} tokens instead of {options.n_ctx:,}: "
                "llama.cpp makes them in steps of 256"
            )
        self.rollback_refused = rollback_refused(self.target)
        self.draft: Context | None = None
        if self.draft_header is None:
            return
        draft = self._context(
            self._model(self.draft_header, self.memory.n_gpu_layers_draft),
            _CACHE,
            max_rows=1,
            n_ctx=_n_ctx(self.draft_header, options),
        )
        refused = rollback_refused(draft)
        if refused is None:
            self.draft = draft
        else:
            self.notes.append(f"the draft model is not used: {refused}")

    def _model(self, header: GGUFHeader, n_gpu_layers: int) -> Model:
        model = Model(
            header.path,
            n_gpu_layers=n_gpu_layers,
            main_gpu=self.options.main_gpu,
            tensor_split=self.options.tensor_split,
        )
        self._closers.append(model)
        return model

    def _context(self, model: Model, cache: str, *, max_rows: int, n_ctx: int) -> Context:
        options = self.options
        if model.n_ctx_train and n_ctx > whole_n_ctx(model.n_ctx_train):
            self.notes.append(
                f"n_ctx {n_ctx:,} is more than the {model.n_ctx_train:,} tokens that "
                f"{model.path.name} was trained for: expect worse text beyond"
            )
        context = Context(
            model,
            n_ctx=n_ctx,
            n_batch=options.n_batch,
            max_rows=max_rows,
            n_threads=self.n_threads,
            n_threads_batch=options.n_threads_batch,
            flash_attn=options.flash_attn,
            type_k=options.type_k or cache,
            type_v=options.type_v or cache,
            cancel=self.cancel,
        )
        self._closers.append(context)
        return context


def plan_pair(
    target: GGUFHeader,
    draft: GGUFHeader | None,
    options: LoadOptions,
    machine: Machine | None = None,
) -> MemoryPlan:
    """What loading these would take, and what of it fits; nothing is loaded.

    machine: this one if left out. Raises NotEnoughMemoryError, InvalidOptionError.
    """
    machine = machine or this_machine()
    if options.ignore_memory:
        machine = replace(machine, ram_free=None)
    wanted = Wanted(
        _setting(target, options, _target_cache(options), _TARGET_ROWS),
        _setting(draft or target, options, _CACHE, 1),
        options.n_gpu_layers,
        options.n_gpu_layers_draft,
        n_ctx_chosen=options.n_ctx is not None,
    )
    return plan_memory(target, draft, wanted, machine)


def _setting(header: GGUFHeader, options: LoadOptions, cache: str, n_rows: int) -> Setting:
    type_k, type_v = options.type_k or cache, options.type_v or cache
    for name in (type_k, type_v):
        cache_type(name)  # an unknown one is told here
    return Setting(
        n_ctx=_n_ctx(header, options),
        n_batch=options.n_batch,
        n_rows=n_rows,
        type_k=type_k,
        type_v=type_v,
        flash_attn=options.flash_attn != "off",
    )


def _n_ctx(header: GGUFHeader, options: LoadOptions) -> int:
    n_ctx = options.n_ctx or min(DEFAULT_N_CTX, header.context_length or DEFAULT_N_CTX)
    return whole_n_ctx(n_ctx)


def _target_cache(options: LoadOptions) -> str:
    return _EXACT_CACHE if options.exact else _CACHE
