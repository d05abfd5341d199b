"""The round loop: draft, verify in one batch, commit.

Invariant between rounds, with `ids` all committed tokens: the target's cache holds `ids[:-1]`,
the drafter's cache a prefix of that; the last token is not decoded yet. `_settle` alone restores
it, from the ids and never from counters, and runs in `finally`: a cancel, an exception and a
normal end leave the same state. A memory that cannot be cut holds a prefix of `ids[:-1]` after a
rejection; the next batch begins with the tokens that it lacks (the replay).

Knows nothing of files, prompts as text, or front ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from localspec.decoding import verify
from localspec.decoding.answer import Answer, Limits
from localspec.decoding.controller import Controller
from localspec.decoding.draft import Draft, Drafter
from localspec.decoding.events import Event, Finished, Prefill, Reason, Round, Stats
from localspec.decoding.logprobs import LogprobReader, TokenLogprob, read_prompt
from localspec.decoding.round_tokens import RoundTokens
from localspec.decoding.target_law import TargetLaw
from localspec.errors import ContextOverflowError, EmptyPromptError
from localspec.llama.context import Cancelled, Context
from localspec.sampling.constraint import Constraint
from localspec.sampling.distribution import Distribution
from localspec.sampling.dry import Dry
from localspec.sampling.params import SamplingParams
from localspec.sampling.seeds import position_uniform

__all__ = ["Engine"]

_LONGEST_REPLAY = 8  # tokens that a verification may begin with; more of them are read apart


class Engine:
    """Generates one answer. Make a new one for the next; the contexts live on.

    verifier: `match`, `rejection`, `block`, or `auto`, which verifies a random draft by *block* and
    any other by *match*. rng: sequential uniforms for rejection and block, the same generator
    that the drafter draws from. drafter None is plain decoding; drafter_name is for the stats.
    n_alternatives: most probable tokens that each RoundToken carries for display.
    constraint: the answer's grammar, shared with the drafter. dry: the DRY penalty, where params
    ask for it. logprobs, prompt_logprobs: read the rows for each token that is committed, and
    for each of the prompt, which is then evaluated from its beginning. plain_seconds: what one
    plain step takes at a depth, by measured costs; None where they are not known.
    """

    def __init__(
        self,
        target: Context,
        drafter: Drafter | None,
        controller: Controller,
        params: SamplingParams,
        *,
        verifier: str,
        seed: int,
        rng: np.random.Generator,
        limits: Limits,
        drafter_name: str = "model",
        notes: Sequence[str] = (),
        n_alternatives: int = 0,
        constraint: Constraint | None = None,
        dry: Dry | None = None,
        logprobs: LogprobReader | None = None,
        prompt_logprobs: LogprobReader | None = None,
        plain_seconds: Callable[[int], float] | None = None,
    ) -> None:
        self._target = target
        self._drafter = drafter
        self._controller = controller
        self._params = params
        self._verifier = verifier
        self._seed = seed
        self._rng = rng
        self._limits = limits
        self._constraint = constraint
        vocabulary = target.model.vocabulary
        self._answer = Answer(limits, target.n_ctx, vocabulary.is_eog, constraint)
        end_ids = [*vocabulary.eog_ids, *limits.stop_ids] if limits.min_tokens else []
        self._law = TargetLaw(
            params,
            seed,
            constraint=constraint,
            dry=dry,
            min_tokens=limits.min_tokens,
            end_ids=end_ids,
        )
        self._told = RoundTokens(vocabulary.piece, n_alternatives, logprobs)
        self._logprobs = logprobs
        self._prompt_logprobs = prompt_logprobs
        self._plain_seconds = plain_seconds
        self._read_prompt: list[TokenLogprob] = []
        self._verifiers: Counter[str] = Counter()
        self.stats = Stats(
            seed=seed,
            verifier=verifier,
            drafter=drafter_name if drafter else "none",
            notes=tuple(notes),
        )

    def run(self, prompt_ids: Sequence[int]) -> Iterator[Event]:
        """Prefill events, rounds, and one Finished; the texts of the rounds add up to its text.

        A cancelled answer may end with a round without tokens that releases held-back text.

        Raises EmptyPromptError and ContextOverflowError before anything is decoded, EngineError
        when llama.cpp refuses.
        """
        self.require_prompt(prompt_ids)
        self._answer.begin(prompt_ids)
        over = self._answer.over_at_once()
        if over is not None and self._prompt_logprobs is None:
            yield self._finish(over)
            return
        index = 0
        try:
            yield from self._prefill()
            if over is not None:
                yield self._finish(over)
                return
            ended: Reason | None = None
            while ended is None:
                round_, ended = self._round(index)
                started = perf_counter()
                self._settle()
                elapsed_s = round_.elapsed_s + perf_counter() - started
                round_ = replace(
                    round_, elapsed_s=elapsed_s, plain_s=self._plain_s(round_, elapsed_s)
                )
                self._count(round_)
                if self._drafter is not None:
                    self._controller.observe(round_)
                if ended is None:
                    yield round_
                index += 1
        except Cancelled:
            ended = "cancelled"
            round_ = Round(
                index, 0, 0, (), "", 0.0, 0.0, 0.0, len(self._answer.ids), self._verifier
            )
        finally:
            self._settle()
        tail = self._answer.flush(ended)
        if ended != "cancelled" or tail:
            yield replace(round_, text=round_.text + tail)
        yield self._finish(ended)

    def require_prompt(self, prompt_ids: Sequence[int]) -> None:
        """Raise EmptyPromptError or ContextOverflowError for a prompt that cannot be run."""
        if not prompt_ids:
            raise EmptyPromptError("the prompt is empty: there is nothing to continue")
        if len(prompt_ids) > self._target.n_ctx:
            raise ContextOverflowError(
                f"the prompt has {len(prompt_ids):,} tokens, but the context holds "
                f"{self._target.n_ctx:,}: shorten it or raise n_ctx (--ctx-size)"
            )

    def _prefill(self) -> Iterator[Prefill]:
        """Evaluate what the cache lacks of the prompt, the last token apart."""
        started = perf_counter()
        target, total = self._target, self._answer.n_prompt
        if self._prompt_logprobs is not None:
            for known in read_prompt(target, self._answer.ids, self._prompt_logprobs):
                self._read_prompt = known
                yield Prefill(len(target.ids), total)
        n_cached = target.keep_prefix(self._answer.ids[:-1])
        elapsed = perf_counter() - started
        yield Prefill(n_cached, total)
        for start in range(n_cached, total - 1, target.n_batch):
            started = perf_counter()
            target.decode(
                self._answer.ids[start : min(start + target.n_batch, total - 1)], n_rows=0
            )
            target.checkpoint()
            elapsed += perf_counter() - started
            self.stats = replace(
                self.stats, cache_n=n_cached, prompt_n=len(target.ids) - n_cached, prompt_s=elapsed
            )
            yield Prefill(len(target.ids), total)
        started = perf_counter()
        target.checkpoint(keep=True)  # where another answer to this prompt begins
        if self._drafter is not None:
            n_ahead = min(self._limits.max_tokens, target.n_ctx - total)
            self._drafter.prepare(
                self._answer.ids, lambda n: self._controller.worth_reading(n, n_ahead)
            )
        elapsed += perf_counter() - started
        self.stats = replace(
            self.stats, cache_n=n_cached, prompt_n=total - n_cached, prompt_s=elapsed
        )

    def _round(self, index: int) -> tuple[Round, Reason | None]:
        started = perf_counter()
        self._shorten_replay()
        begun = perf_counter()
        draft, worth = self._draft()
        drafted = perf_counter()
        n_replayed = self._n_replay()
        if draft.ids:
            self._target.checkpoint()
        marked = perf_counter()
        unread = self._answer.ids[len(self._target.ids) :]
        rows = self._target.decode([*unread, *draft.ids], n_rows=len(draft.ids) + 1)
        verified = perf_counter()

        p = self._law.rows(rows, self._answer.ids, self._answer.n_prompt, draft.ids)
        verifier = self._verifier_of(draft)
        verdict = self._verify(verifier, p, draft)
        a = verdict.n_accepted
        self._law.advance(p, [*draft.ids[:a], verdict.token])
        tokens = self._told.tokens(draft, p, rows, a, verdict.token)
        if self._drafter is not None:
            self._drafter.learn(p[: a + 1])
        depth = len(self._answer.ids)
        tokens, text, ended = self._answer.commit(tokens)
        round_ = Round(
            index=index,
            n_draft=len(draft.ids),
            n_accepted=sum(token.verdict == "accepted" for token in tokens),
            tokens=tuple(tokens),
            text=text,
            draft_s=drafted - begun if self._drafter is not None else 0.0,
            verify_s=verified - marked,
            elapsed_s=perf_counter() - started,
            depth=depth,
            verifier=verifier,
            worth=worth,
            n_replayed=n_replayed,
        )
        return round_, ended

    def _n_replay(self) -> int:
        """Committed tokens, the last one apart, that the target must read again."""
        return len(self._answer.ids) - 1 - len(self._target.ids)

    def _shorten_replay(self) -> None:
        if self._n_replay() > _LONGEST_REPLAY:
            self._target.decode(self._answer.ids[len(self._target.ids) : -1], n_rows=0)

    def _draft(self) -> tuple[Draft, tuple[float, ...]]:
        """What the drafter proposes at the controller's pace, and what each length was worth."""
        room = self._room()
        if self._drafter is None:
            return Draft(), ()
        may_trim = not self._drafter.is_random  # cutting a random draft would bend the law
        pace = self._controller.begin(
            len(self._answer.ids), room, may_trim=may_trim, n_replay=self._n_replay()
        )
        draft = self._drafter.propose(self._answer.ids, pace)
        if may_trim:
            draft.cut(pace.trim())
        if self._constraint is not None:  # a drafter need not know the grammar
            n = self._constraint.n_valid(draft.ids)
            if n < len(draft.ids):  # what follows a forbidden token could never be accepted
                draft.cut(n if may_trim or draft.is_deterministic else n + 1)
        return draft, pace.worth()

    def _room(self) -> int:
        """The most tokens that a draft may have: context, batch, rows, and budget."""
        return min(
            self._target.n_ctx - len(self._answer.ids),
            self._target.n_batch - 1 - self._n_replay(),
            self._target.max_rows - 1,
            self._answer.n_left - 1,
        )

    def _verifier_of(self, draft: Draft) -> str:
        if self._verifier != "auto":
            return self._verifier
        return "match" if draft.is_deterministic else "block"

    def _verify(self, verifier: str, p: Sequence[Distribution], draft: Draft) -> verify.Verdict:
        if verifier == "match":
            first = self._answer.n_tokens
            u = [
                position_uniform(self._seed, first + i) if len(p_i.ids) > 1 else 0.0
                for i, p_i in enumerate(p)
            ]
            return verify.match(p, draft.ids, u)
        rule = verify.rejection if verifier == "rejection" else verify.block
        coins = self._rng.random(len(draft.ids)).tolist()
        return rule(p, draft.q, draft.ids, coins, float(self._rng.random()))

    def _plain_s(self, round_: Round, elapsed_s: float) -> float | None:
        """The tokens of a round one by one: a step of the target each, and our own time for it."""
        if self._plain_seconds is None:
            return None
        ours = max(0.0, elapsed_s - round_.draft_s - round_.verify_s) / (round_.n_draft + 1)
        n = sum(token.committed for token in round_.tokens)
        return n * (self._plain_seconds(round_.depth) + ours)

    def _count(self, round_: Round) -> None:
        stats = self.stats
        self._verifiers[round_.verifier] += round_.n_draft
        n_rejected = sum(token.verdict == "rejected" for token in round_.tokens)
        self.stats = replace(
            stats,
            predicted_n=self._answer.n_tokens,
            predicted_s=stats.predicted_s + round_.elapsed_s,
            draft_n=stats.draft_n + round_.n_draft,
            draft_n_accepted=self._answer.n_accepted,
            draft_n_rejected=stats.draft_n_rejected + n_rejected,
            n_passes=stats.n_passes + 1,
            draft_s=stats.draft_s + round_.draft_s,
            verify_s=stats.verify_s + round_.verify_s,
            plain_s=None if round_.plain_s is None else (stats.plain_s or 0.0) + round_.plain_s,
            verifier=max(self._verifiers, key=self._verifiers.__getitem__),
        )

    def _settle(self) -> None:
        """Cut both caches to what is committed, the last token apart, or to a checkpoint before."""
        self._target.keep_prefix(self._answer.ids[:-1])
        if self._drafter is not None:
            self._drafter.settle(self._answer.ids)

    def _finish(self, reason: Reason) -> Finished:
        complete = self._answer.is_complete()
        if complete is False:
            note = "the answer was cut before its text was complete under the grammar"
            self.stats = replace(self.stats, notes=(*self.stats.notes, note))
        return Finished(
            reason,
            self._answer.text,
            self._answer.token_ids,
            self.stats,
            None if self._logprobs is None else tuple(self._answer.logprobs),
            None if self._prompt_logprobs is None else tuple(self._read_prompt),
            complete,
        )
