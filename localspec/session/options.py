"""The knobs, in two frozen dataclasses: how models are loaded, and how one answer is made.

The command line uses the same words. An unknown name is an error that names the nearest one.
"""

from __future__ import annotations

import dataclasses
import difflib
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from localspec.drafting.custom_drafter import shape_of
from localspec.errors import InvalidOptionError
from localspec.sampling.json_schema import read_schema
from localspec.sampling.params import SamplingParams
from localspec.sampling.structured import AnswerGrammar, answer_grammar
from localspec.session.plugins import require_plugin

__all__ = ["LoadOptions", "Options", "parse"]

VERIFIERS = ("auto", "match", "rejection", "block")
LOGPROBS_OF = ("raw", "processed")
DRAFTERS = ("auto", "model", "ngram", "splice", "none")
WHEN_BUSY = ("error", "wait")
DEFAULT_N_CTX = 8192
_MAX_THREADS = 512  # ggml.h, GGML_MAX_N_THREADS: more kill the process
_MAX_N_CTX = 1 << 24

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How target and draft are loaded. n_ctx, n_batch and threads hold for both.

    n_ctx: tokens; None is 8192 or what the model was trained for, whichever is less.
    n_gpu_layers, n_gpu_layers_draft: negative puts every layer on the GPU (ignored, and said so
    by `Session.devices`, in a build without GPU support). flash_attn: auto, on, off.
    type_k, type_v: types of the K/V caches; None is f16, or bf16 when exact. n_threads: None is
    the physical cores that this process may use. exact: verify only in batch sizes whose rows
    are bit-identical to single-token rows, found by test at load, so that greedy text is byte
    for byte the plain text of an exact load. ignore_memory: load even what the memory plan
    (session/memory_plan.py) finds too large. when_busy: what a second caller gets while an answer
    is made: `error` is BusyError, `wait` its turn, in the order of coming.
    """

    n_ctx: int | None = None
    n_batch: int = 512
    n_threads: int | None = None
    n_threads_batch: int | None = None
    n_gpu_layers: int = -1
    n_gpu_layers_draft: int = -1
    main_gpu: int = 0
    tensor_split: tuple[float, ...] | None = None
    flash_attn: str = "auto"
    type_k: str | None = None
    type_v: str | None = None
    exact: bool = False
    ignore_memory: bool = False
    when_busy: str = "error"

    def __post_init__(self) -> None:
        _one_of("when_busy", self.when_busy, WHEN_BUSY)
        for name in ("n_threads", "n_threads_batch"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1, _MAX_THREADS)
        if self.n_ctx is not None:
            _whole("n_ctx", self.n_ctx, 1, _MAX_N_CTX)
        _whole("n_batch", self.n_batch, 1, _MAX_N_CTX)
        _whole("main_gpu", self.main_gpu, 0, _MAX_THREADS)
        for name in ("n_gpu_layers", "n_gpu_layers_draft"):
            _whole(name, getattr(self, name), -1_000, 100_000)
        for name in ("exact", "ignore_memory"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidOptionError(f"{name} is {getattr(self, name)!r}: give True or False")
        if self.tensor_split is not None:
            shares: Any = self.tensor_split
            if not isinstance(shares, (list, tuple)) or not all(
                isinstance(share, numbers.Real) for share in shares
            ):
                raise InvalidOptionError(f"tensor_split takes a list of numbers, not {shares!r}")
            object.__setattr__(self, "tensor_split", tuple(shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(SamplingParams):
    """How one answer is made: the fields of SamplingParams, with llama.cpp's defaults, and these.

    max_tokens: None goes on until the model ends or the context is full.
    seed: None or -1 draws a fresh one, which the stats report.
    stop: strings that end the answer; they are cut from it.
    n_draft: tokens drafted each round, exactly that many where there is room; None drafts as much
    as pays by the costs measured on this machine, down to nothing, and at most n_draft_max
    (16, or 32 for copies of the text, by default). verifier: auto is `match` when greedy or when
    a seed is given (its text depends on the seed alone); else a draft drawn at random is
    verified by `block` and any other by `match`, whichever drafts were accepted more of late.
    n_alternatives: how many of both models' most probable tokens each RoundToken carries, at most
    64. drafter: model is the draft model, ngram copies what followed the same words earlier in the
    text, splice is both, auto is both when the draft model can pay here and ngram when not; or the
    name of an installed drafter, or a drafter of your own (see localspec.Guesser, Predictor,
    Drafter). controller: None is n_draft or what pays; or an installed name, or your own.

    min_tokens: neither the model's end nor a stop id comes before so many tokens; stop strings
    do, and a grammar that is at its end. ignore_eos: the model never ends it. stop_ids: token ids
    that end the answer, and are not part of it.
    json_schema (a mapping, JSON text, or a pydantic model class), grammar (GBNF or Lark), choices
    (texts) and regex: one of them, which every answer follows; see docs/structured.md.
    logprobs: for every token of the answer its log-probability and the N best alternatives' (0 to
    64), from the target's row there; None does without. logprobs_of: `raw`, of the logits as the
    model gives them, or `processed`, of the distribution that was sampled. prompt_logprobs: the
    same, always raw, for the prompt, which is then read from its beginning.
    typical_p … mirostat_eta: see SamplingParams. XTC and mirostat have no closed distribution
    given the text alone, so their verifier is match.

    Raises InvalidOptionError for a value outside its range.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    json_schema: Any = None
    grammar: str | None = None
    choices: tuple[str, ...] | None = None
    regex: str | None = None
    logprobs: int | None = None
    logprobs_of: str = "raw"
    prompt_logprobs: int | None = None
    n_draft: int | None = None
    n_draft_max: int | None = None
    verifier: str = "auto"
    drafter: Any = "auto"
    controller: Any = None
    n_alternatives: int = 0

    def __post_init__(self) -> None:
        SamplingParams.__post_init__(self)  # super() does not know a class with slots
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 0)
        for name in ("n_draft", "n_draft_max"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 0)
        if self.n_draft is not None and self.n_draft_max is not None:
            raise InvalidOptionError("n_draft is exact and n_draft_max a bound: give one of them")
        _whole("n_alternatives", self.n_alternatives, 0, 64)
        _whole("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidOptionError(
                f"min_tokens is {self.min_tokens}, more than max_tokens {self.max_tokens}"
            )
        if not isinstance(self.ignore_eos, bool):
            raise InvalidOptionError(f"ignore_eos is {self.ignore_eos!r}: give True or False")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 0, 64)
        _one_of("logprobs_of", self.logprobs_of, LOGPROBS_OF)
        _one_of("verifier", self.verifier, VERIFIERS)
        _drafter(self.drafter)
        _controller(self.controller, self.n_draft)
        given: Any = self.stop  # one string is taken too
        stop = (given,) if isinstance(given, str) else given
        if not isinstance(stop, (list, tuple)) or not all(
            isinstance(text, str) and text for text in stop
        ):
            raise InvalidOptionError("stop takes strings that are not empty")
        object.__setattr__(self, "stop", tuple(stop))
        ids: Any = self.stop_ids
        if not isinstance(ids, (list, tuple, set, frozenset)):
            raise InvalidOptionError(f"stop_ids takes token ids, not {ids!r}")
        for token in ids:
            _whole("stop_ids", token, 0)
        object.__setattr__(self, "stop_ids", tuple(ids))
        if self.needs_match and self.verifier in ("rejection", "block"):
            raise InvalidOptionError(
                f"{self.needs_match} has no closed distribution, so that {self.verifier} cannot "
                "verify by it: choose verifier match or auto"
            )
        if self.json_schema is not None:  # a class or a text has no place in a recipe
            object.__setattr__(self, "json_schema", read_schema(self.json_schema))
        self.answer_grammar()

    def answer_grammar(self) -> AnswerGrammar | None:
        """The grammar that the answer follows; None without one."""
        return answer_grammar(self.json_schema, self.grammar, self.choices, self.regex)

    def sampling(self) -> SamplingParams:
        """The part that shapes the distribution."""
        names = [f.name for f in dataclasses.fields(SamplingParams)]
        return SamplingParams(**{name: getattr(self, name) for name in names})


def parse(kind: type[T], given: Mapping[str, Any]) -> T:
    """Build an options dataclass; an unknown name raises InvalidOptionError with the nearest."""
    known: Sequence[str] = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f": choose from {', '.join(known)}"
            raise InvalidOptionError(f"unknown option {name!r}{hint}")
    return kind(**given)


def _whole(name: str, value: Any, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidOptionError(f"{name} must be a whole number, not {value!r}")
    number = int(value)
    if number < low:
        raise InvalidOptionError(f"{name} is {number}: it must be {low} or more")
    if high is not None and number > high:
        raise InvalidOptionError(f"{name} is {number:,}: it must be at most {high:,}")


def _one_of(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidOptionError(f"{name} is {value!r}: choose one of {', '.join(choices)}")


def _drafter(value: Any) -> None:
    if isinstance(value, str):
        if value not in DRAFTERS:
            require_plugin("drafters", value, DRAFTERS)
    elif not callable(value) and shape_of(value) is None:
        raise InvalidOptionError(
            f"drafter is {type(value).__name__}: give a name, or an object with guess(ids, n_max), "
            "predict(ids) or propose(ids, pace), or a callable that makes one from a Vocabulary"
        )


def _controller(value: Any, n_draft: int | None) -> None:
    if value is None:
        return
    if n_draft is not None:
        raise InvalidOptionError("n_draft fixes the length of drafts: leave out the controller")
    if isinstance(value, str):
        require_plugin("controllers", value, ())
    elif not callable(value) and not callable(getattr(value, "begin", None)):
        raise InvalidOptionError(
            f"controller is {type(value).__name__}: give a name, an object with begin() and "
            "observe(), or a callable that makes one"
        )
