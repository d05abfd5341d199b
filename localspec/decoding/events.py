"""What a generation reports, as it happens. Every front end reads this one stream.

Prefill events come first, then one Round per target pass, then exactly one Finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from localspec.decoding.logprobs import TokenLogprob

__all__ = [
    "Alternative",
    "Event",
    "Finished",
    "Prefill",
    "Reason",
    "Round",
    "RoundToken",
    "Stats",
    "Verdict",
]

Verdict: TypeAlias = Literal["accepted", "rejected", "discarded", "bonus", "correction"]
Reason: TypeAlias = Literal["eos", "stop", "length", "context", "cancelled"]


@dataclass(frozen=True, slots=True)
class Prefill:
    """`done` of `total` prompt tokens are in the target's cache (reused ones counted)."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that a model held for probable; prob as p_raw and q_raw are."""

    id: int
    piece: bytes
    prob: float

    @property
    def text(self) -> str:
        """The piece for display alone; half a character shows as U+FFFD."""
        return self.piece.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class RoundToken:
    """One token of a round and what became of it.

    piece: the bytes it adds to the text. source: who proposed it (`model`, `ngram`, `grammar` for
    text that the grammar forces, or `target` for the bonus and the correction). p, q: its
    probability under the processed distributions of target and draft; p_raw, q_raw: under the
    softmax of the unprocessed logits at temperature 1. q and q_raw are None where no draft model
    spoke.
    p_top, q_top: the most probable tokens of both models here, best first; empty unless the
    option n_alternatives asks for them, q_top also where no draft model spoke. logprob: of a
    committed token, when the option logprobs asks for it.
    """

    id: int
    piece: bytes
    source: str
    verdict: Verdict
    p: float
    q: float | None
    p_raw: float
    q_raw: float | None
    p_top: tuple[Alternative, ...] = ()
    q_top: tuple[Alternative, ...] = ()
    logprob: TokenLogprob | None = None

    @property
    def text(self) -> str:
        """The piece for display alone; half a character shows as U+FFFD."""
        return self.piece.decode("utf-8", "replace")

    @property
    def committed(self) -> bool:
        """True when the token belongs to the answer."""
        return self.verdict in ("accepted", "bonus", "correction")


@dataclass(frozen=True, slots=True)
class Round:
    """One draft and its verification, or a plain step when n_draft is 0.

    tokens: every draft token in order, then the target's own. A token behind the end of the answer
    is `discarded`, and so is a draft token that is that end: it counts as no token of the answer
    and as no accepted one. text: what this round released, after UTF-8 and stop hold-back.
    Times are in seconds, measured inside the loop: a slow reader does not count.
    depth: committed tokens before the round. verifier: the rule that this round was verified by.
    worth: worth[K] is what the controller expected a draft of K tokens to win over a plain step,
    in tokens of the time that it takes; empty when nobody weighed it (a fixed n_draft).
    n_replayed: committed tokens that the batch began with, since the target's memory cannot be cut
    and went back to a checkpoint after an earlier rejection; they count in verify_s.
    plain_s: what the tokens of this round would have taken one by one, by the costs measured on
    this machine; None where these are not known.
    """

    index: int
    n_draft: int
    n_accepted: int
    tokens: tuple[RoundToken, ...]
    text: str
    draft_s: float
    verify_s: float
    elapsed_s: float
    depth: int = 0
    verifier: str = "match"
    worth: tuple[float, ...] = ()
    n_replayed: int = 0
    plain_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and times of one answer. Names as in llama-server's timings where they exist.

    cache_n: prompt tokens reused from the cache. prompt_n: prompt tokens evaluated; the last one
    goes with the first draft, so that prompt_s covers prompt_n - 1 of them.
    predicted_n: tokens of the answer (the end-of-generation token is not one).
    draft_n: tokens proposed. draft_n_accepted: those that are in the answer, so that it never
    exceeds predicted_n; draft_n_rejected: those that the target refused.
    n_passes: target decodes of the answer. Times in seconds. plain_s: what the same tokens would
    have taken one by one, by the costs measured on this machine at the depth of this answer; None
    where these are not known.
    """

    cache_n: int = 0
    prompt_n: int = 0
    prompt_s: float = 0.0
    predicted_n: int = 0
    predicted_s: float = 0.0
    draft_n: int = 0
    draft_n_accepted: int = 0
    draft_n_rejected: int = 0
    n_passes: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    plain_s: float | None = None
    seed: int = 0
    verifier: str = "match"
    drafter: str = "none"
    notes: tuple[str, ...] = ()

    @property
    def prompt_per_second(self) -> float:
        """Prompt tokens evaluated per second of prefill; 0.0 when none were."""
        return (self.prompt_n - 1) / self.prompt_s if self.prompt_n > 1 else 0.0

    @property
    def predicted_per_second(self) -> float:
        """Answer tokens per second of decoding, prefill apart."""
        return self.predicted_n / self.predicted_s if self.predicted_s > 0 else 0.0

    @property
    def other_s(self) -> float:
        """Decoding time that was neither draft nor verification."""
        return max(0.0, self.predicted_s - self.draft_s - self.verify_s)

    @property
    def acceptance_rate(self) -> float | None:
        """α = accepted / (accepted + rejected), None before either."""
        n_verified = self.draft_n_accepted + self.draft_n_rejected
        return self.draft_n_accepted / n_verified if n_verified else None

    @property
    def tokens_per_pass(self) -> float:
        """Answer tokens for each target decode; 1.0 is plain decoding.

        A decode whose only token is the end counts, and adds no token of the answer.
        """
        return self.predicted_n / self.n_passes if self.n_passes else 0.0

    @property
    def speed_up(self) -> float | None:
        """Speed over plain decoding, by measured costs.

        None where nothing was drafted, and where the costs cannot be right: no pass is faster than
        a plain step, so that the ratio is at most the tokens of a pass (the end counted here).
        """
        if self.plain_s is None or not self.predicted_s or self.acceptance_rate is None:
            return None
        ratio = self.plain_s / self.predicted_s
        return ratio if ratio <= (self.predicted_n + 1) / self.n_passes else None

    def timings(self) -> dict[str, float | int]:
        """The flat object of llama-server's API, times in milliseconds."""
        return {
            "cache_n": self.cache_n,
            "prompt_n": self.prompt_n,
            "prompt_ms": self.prompt_s * 1e3,
            "prompt_per_second": self.prompt_per_second,
            "predicted_n": self.predicted_n,
            "predicted_ms": self.predicted_s * 1e3,
            "predicted_per_second": self.predicted_per_second,
            "draft_n": self.draft_n,
            "draft_n_accepted": self.draft_n_accepted,
            "draft_n_rejected": self.draft_n_rejected,
            "draft_ms": self.draft_s * 1e3,
            "verify_ms": self.verify_s * 1e3,
            "other_ms": self.other_s * 1e3,
            "n_passes": self.n_passes,
            **({} if self.plain_s is None else {"plain_ms": self.plain_s * 1e3}),
        }


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer: why, what, and what it took.

    token_ids: the answer's tokens, without the one that ended the generation; after a stop
    string, those that left something in `text`. logprobs: one for each of token_ids, None when
    they were not asked for; prompt_logprobs: one for each token of the prompt. grammar_complete:
    whether the text is a whole sentence of the grammar; None without one. When the grammar allows
    nothing but the end, the answer ends there with `eos`.
    """

    reason: Reason
    text: str
    token_ids: tuple[int, ...]
    stats: Stats
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    grammar_complete: bool | None = None


Event: TypeAlias = Prefill | Round | Finished
