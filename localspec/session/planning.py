"""From the options of one answer to the engine that makes it: who drafts, which verifier, how far.

Holds what outlives an answer: the draft's cache, the index of the text, what was learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from localspec.control.economics import COPIES_ALONE, look
from localspec.control.expected_value import ExpectedValueController, Experience
from localspec.control.measured_costs import MeasuredCosts
from localspec.decoding.answer import Limits
from localspec.decoding.controller import Controller, FixedController
from localspec.decoding.draft import Drafter
from localspec.decoding.engine import Engine
from localspec.decoding.logprobs import LogprobReader
from localspec.drafting.copies import Copies
from localspec.drafting.draft_cache import DraftCache
from localspec.drafting.draft_temperature import DraftTemperature
from localspec.drafting.model_drafter import ModelDrafter
from localspec.drafting.splice_drafter import SpliceDrafter
from localspec.errors import EngineError, InvalidOptionError
from localspec.llama.context import common_prefix
from localspec.sampling.constraint import Constraint
from localspec.sampling.dry import Breakers, Dry, sequence_breakers
from localspec.sampling.params import SamplingParams
from localspec.sampling.seeds import resolve_seed, sequential_uniforms
from localspec.sampling.structured import Matcher, named_tokens
from localspec.session.custom_drafters import CustomDrafter, CustomDrafters
from localspec.session.options import Options
from localspec.session.pair import Pair

__all__ = ["Planner"]


class Planner:
    """Makes one Engine for each answer."""

    def __init__(self, pair: Pair, measured: MeasuredCosts) -> None:
        self._pair = pair
        self._measured = measured
        self.draft_cache: DraftCache | None = None
        if pair.draft is not None:
            self.draft_cache = DraftCache(
                pair.draft, n_vocab_target=pair.target.n_vocab, foreign_ids=pair.foreign_ids
            )
        self._copies = Copies()
        self._dry_breakers: dict[tuple[str, ...], Breakers] = {}
        self._custom = CustomDrafters(pair.target.model.vocabulary)
        self.forget()

    def forget(self) -> None:
        """Forget what was learned about acceptance."""
        self.experiences = {True: Experience(), False: Experience()}  # greedy, sampling
        self.temperature = DraftTemperature()
        self._custom.forget()

    def is_cold(self, ids: Sequence[int]) -> bool:
        """True when neither model has anything of this prompt in its cache."""
        draft = self._pair.draft
        warm = common_prefix(self._pair.target.ids, ids[:-1]) or (
            self.draft_cache is not None
            and draft is not None
            and (self.draft_cache.start or common_prefix(draft.ids, ids[:-1]))
        )
        return not warm

    def engine(self, options: Options) -> Engine:
        """The engine of one answer; its stats tell what is in use and why.

        Raises InvalidOptionError for options that this pair cannot serve.
        """
        notes = list(self._pair.notes)
        params = self._params(options)
        constraint = self._constraint(options, notes)
        dry = Dry(params, self._breakers(params)) if params.has_dry else None
        seed = resolve_seed(options.seed)
        rng = sequential_uniforms(seed)
        custom = self._custom.kind(options.drafter)
        kind = self._drafter_kind(options, custom, notes)
        verifier = _verifier(
            options,
            greedy=params.greedy,
            exact=self._pair.options.exact,
            draws=custom.is_predictor if custom else kind not in ("ngram", "none"),
        )
        if params.needs_match and kind != "none":
            notes.append(
                f"{params.needs_match} has no closed distribution given the text: the verifier is "
                "match, with randomness by seed and position"
            )
        drafter: Drafter | None = None
        if custom is not None and kind != "none":
            drafter = self._custom.guarded(custom, None if verifier == "match" else rng)
        elif kind != "none":
            model: ModelDrafter | None = None
            if kind != "ngram" and self.draft_cache is not None:
                model = ModelDrafter(
                    self.draft_cache,
                    params,
                    rng=None if verifier == "match" else rng,
                    # a seed that is given promises the same text again
                    temperature=None if _is_seeded(options) else self.temperature,
                    n_alternatives=options.n_alternatives,
                    constraint=constraint,
                    dry=dry,
                )
            copies = self._copies if kind != "model" else None
            drafter = SpliceDrafter(model, copies, constraint)
        return Engine(
            self._pair.target,
            drafter,
            self._controller(options, custom if kind != "none" else None, kind, notes),
            params,
            verifier=verifier,
            seed=seed,
            rng=rng,
            limits=self._limits(options),
            drafter_name=kind,
            notes=notes,
            n_alternatives=options.n_alternatives,
            constraint=constraint,
            dry=dry,
            logprobs=self._reader(options.logprobs, processed=options.logprobs_of == "processed"),
            prompt_logprobs=self._reader(options.prompt_logprobs),
            plain_seconds=self._measured.plain_seconds(),
        )

    def _params(self, options: Options) -> SamplingParams:
        params = options.sampling()
        vocabulary = self._pair.target.model.vocabulary
        vocabulary.require_known(tuple(options.logit_bias), "logit_bias")
        if not options.ignore_eos:
            return params
        never = dict.fromkeys(vocabulary.eog_ids, -math.inf)
        return replace(params, logit_bias={**params.logit_bias, **never})

    def _constraint(self, options: Options, notes: list[str]) -> Constraint | None:
        grammar = options.answer_grammar()
        if grammar is None:
            return None
        notes += grammar.notes
        vocabulary = self._pair.target.model.vocabulary
        ends = {f"<[{token}]>" for token in vocabulary.eog_ids}
        ends |= {text for text, token in vocabulary.markers.items() if token in vocabulary.eog_ids}
        for name in named_tokens(options.grammar or ""):
            if name in ends:
                raise InvalidOptionError(
                    f"the grammar names {name}, which ends an answer: leave it out, since an "
                    "answer ends where the grammar lets it"
                )
        try:
            matcher = Matcher(grammar, vocabulary.grammar_tokenizer)
            return Constraint(matcher, vocabulary.spell, vocabulary.piece)
        except EngineError as error:
            raise InvalidOptionError(f"the grammar cannot be followed: {error}") from None

    def _breakers(self, params: SamplingParams) -> Breakers:
        """Of DRY, found in the vocabulary once."""
        known = self._dry_breakers.get(params.dry_sequence_breakers)
        if known is None:
            vocabulary = self._pair.target.model.vocabulary
            known = sequence_breakers(vocabulary, params.dry_sequence_breakers)
            self._dry_breakers[params.dry_sequence_breakers] = known
        return known

    def _reader(self, n_top: int | None, *, processed: bool = False) -> LogprobReader | None:
        if n_top is None:
            return None
        piece = self._pair.target.model.vocabulary.piece
        return LogprobReader(n_top, piece, processed=processed)

    def _controller(
        self, options: Options, custom: CustomDrafter | None, kind: str, notes: list[str]
    ) -> Controller:
        most = min(self._pair.target.max_rows, self._pair.target.n_batch) - 1
        if options.n_draft is None and kind != "none":
            costs = self._measured.costs()
            if options.controller is not None:
                return self._custom.controller(options.controller, costs.may_verify)
            experiences = custom.experiences if custom else self.experiences
            return ExpectedValueController(
                custom.costs(costs) if custom else costs,
                experiences[options.greedy],
                n_draft_max=options.n_draft_max,
            )
        n_draft = options.n_draft or 0
        if n_draft > most:
            notes.append(f"n_draft {n_draft} is cut to {most}, the rows of one verification")
        return FixedController(
            n_draft, self._measured.costs().may_verify if self._pair.options.exact else None
        )

    def _drafter_kind(
        self, options: Options, custom: CustomDrafter | None, notes: list[str]
    ) -> str:
        """Which drafter is used; a note says why when it is not the one asked for."""
        kind: str = custom.name if custom else options.drafter
        if not custom and kind in ("model", "splice") and self._pair.draft is None:
            raise InvalidOptionError(
                f"drafter is {kind}, but no draft model is in use: "
                + ("; ".join(self._pair.notes) or "load one with draft=…, or choose ngram or none")
            )
        refused = self._pair.rollback_refused
        if kind != "none" and refused:
            notes.append(f"drafting is off for {self._pair.target.model.path.name}: {refused}")
            return "none"
        if kind != "none" and self._pair.options.exact and self._pair.target.replays:
            notes.append(
                "exact mode: this memory cannot be cut back, so refused drafts would be read again "
                "in other batches than plain decoding uses; nothing is drafted"
            )
            return "none"
        if kind != "none" and self._pair.options.exact and not self._measured.exact_sizes():
            notes.append(
                "exact mode: no batch of 2 to 17 tokens gives the bits of single decodes here "
                f"({self._pair.target_header.quant}), so nothing is drafted"
            )
            return "none"
        if custom is not None or kind != "auto":
            return kind
        if self._pair.draft is None:
            return "ngram"
        if options.n_draft is not None:
            return "model"
        outlook = look(self._measured.costs(), device="GPU" if self._pair.on_gpu else "CPU")
        if outlook.pays:
            return "splice"
        notes.append(f"{COPIES_ALONE}: {outlook.words}")
        return "ngram"

    def _limits(self, options: Options) -> Limits:
        vocabulary = self._pair.target.model.vocabulary
        ids = {text: vocabulary.special_token(text) for text in options.stop}
        vocabulary.require_known(options.stop_ids, "stop_ids")
        budget = options.max_tokens
        return Limits(
            max_tokens=self._pair.target.n_ctx + 1 if budget is None else budget,
            stop=options.stop,
            stop_ids=frozenset(token for token in ids.values() if token is not None)
            | frozenset(options.stop_ids),
            min_tokens=options.min_tokens,
        )


def _verifier(options: Options, *, greedy: bool, exact: bool, draws: bool) -> str:
    """`auto` is left to the engine, round by round, where drafts are drawn at random.

    draws: the drafter can draw its tokens at random.
    """
    if options.needs_match:
        return "match"
    if exact:
        if options.verifier not in ("auto", "match"):
            raise InvalidOptionError("exact mode cuts drafts to fit, so its verifier is match")
        return "match"
    if options.verifier != "auto":
        return options.verifier
    settled = greedy or _is_seeded(options) or not draws
    return "match" if settled else "auto"


def _is_seeded(options: Options) -> bool:
    return options.seed not in (None, -1)
