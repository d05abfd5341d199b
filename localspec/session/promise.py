"""What a seed promises about an answer, said by the answer itself.

Two things decide. The rule: *match* and greedy text depend on the seed alone, neither on drafts
nor on their lengths; *rejection* and *block* repeat only with the same draft lengths and the same
draft temperature. The bits: llama.cpp computes slightly other logits in other batch shapes, so
that near ties may fall otherwise where the shapes are not the same (README, "The promise").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Promise", "PromiseKind", "promise_of"]

PromiseKind: TypeAlias = Literal["bits", "near ties", "law"]


@dataclass(frozen=True, slots=True)
class Promise:
    """How far the same answer comes again on the same machine, engine and files.

    kind: `bits`, the same ids always; `near ties`, the same ids but where two tokens are almost
    tied; `law`, another sample of the same law. words: why, for a person.
    exact: the models were loaded so. cold: nothing of the prompt came from the cache.
    """

    kind: PromiseKind
    words: str
    exact: bool
    cold: bool


def promise_of(
    *,
    verifier: str,
    greedy: bool,
    seeded: bool,
    fixed_lengths: bool,
    exact: bool,
    cold: bool,
) -> Promise:
    """verifier: the one that judged. seeded: the caller gave the seed, so that nothing learned
    before chose the draft temperature. fixed_lengths: n_draft was given, or nothing was drafted.
    """
    if verifier == "match" or greedy:
        rule = "greedy text" if greedy else "match: the text depends on the seed alone"
        if cold and (exact or fixed_lengths):
            why = "exact batch sizes" if exact else "a fixed n_draft"
            return Promise("bits", f"{rule}; {why} and a cold cache fix the bits", exact, cold)
        reasons = [] if cold else ["part of the prompt came from the cache"]
        if not (exact or fixed_lengths):
            reasons.append("draft lengths followed the clock")
        return Promise("near ties", f"{rule}; but {' and '.join(reasons)}", exact, cold)
    if not (seeded and fixed_lengths):
        missing = "no seed was given" if not seeded else "draft lengths followed the clock"
        return Promise("law", f"{verifier} depends on the drafts, and {missing}", exact, cold)
    kind: PromiseKind = "bits" if cold else "near ties"
    cache = "a cold cache" if cold else "a reused cache"
    return Promise(
        kind, f"{verifier} with a seed, a fixed n_draft, a fixed draft temperature, {cache}",
        exact, cold,
    )  # fmt: skip
