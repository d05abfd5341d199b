"""Three lawful ways to verify a draft. Pure functions; randomness comes in as arguments.

Notation, as in the papers. A round drafts d_1..d_K. p_i is the target's processed distribution
after the committed text and d_1..d_{i-1}; q_i is the distribution that d_i was drawn from (one-hot
for a deterministic drafter). Python counts from 0: `p[i]` verifies `draft[i]`, and `p[K]` follows
the whole draft. A verdict keeps the first a draft tokens and adds one token of the target's own:
the *correction* when a < K, the *bonus* when a = K.

Each way leaves the target's law unchanged; tests/unit/test_law.py proves it by enumeration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.sampling.distribution import Distribution, residual, residual_mass

__all__ = ["Verdict", "block", "match", "rejection"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`n_accepted` draft tokens are kept, then `token` follows."""

    n_accepted: int
    token: int


def match(p: Sequence[Distribution], draft: Sequence[int], u: Sequence[float]) -> Verdict:
    """Sample y_i from p_i with the uniform number of its position; accept while y_i is d_i.

    len(p) = len(u) = K + 1. Exact for any drafter, since every token kept is a sample of p.
    """
    for i, d in enumerate(draft):
        y = p[i].sample(u[i])
        if y != d:
            return Verdict(i, y)
    k = len(draft)
    return Verdict(k, p[k].sample(u[k]))


def rejection(
    p: Sequence[Distribution],
    q: Sequence[Distribution],
    draft: Sequence[int],
    coins: Sequence[float],
    u: float,
) -> Verdict:
    """Speculative sampling: Leviathan et al. 2023, Chen et al. 2023.

    Accept d_i with probability min(1, p_i(d_i)/q_i(d_i)); at the first refusal draw from
    norm(max(0, p_i − q_i)). len(p) = K + 1, len(q) = len(coins) = K, coins and u in [0, 1).
    """
    for i, d in enumerate(draft):
        if coins[i] * q[i].prob(d) >= p[i].prob(d):
            correction = residual(p[i], q[i]) or p[i]
            return Verdict(i, correction.sample(u))
    k = len(draft)
    return Verdict(k, p[k].sample(u))


def block(
    p: Sequence[Distribution],
    q: Sequence[Distribution],
    draft: Sequence[int],
    coins: Sequence[float],
    u: float,
) -> Verdict:
    """Block verification: Sun et al. 2024, algorithm 2; the η_i of the paper are `coins`.

    Verifies the draft jointly and accepts at least as many tokens in expectation as `rejection`.
    π_0 = 1, π_i = min(1, π_{i−1}·p_i(d_i)/q_i(d_i)); R_i = max(0, π_i·p_{i+1} − q_{i+1});
    h_i = ΣR_i / (ΣR_i + 1 − π_i) for i < K and h_K = π_K. The longest prefix with η_i < h_i
    is kept, then norm(R_a) is drawn from, or p_{K+1} when a = K. 0/0 counts as h = 1.
    """
    k = len(draft)
    pi = [1.0]
    for i, d in enumerate(draft):
        pi.append(min(1.0, pi[i] * p[i].prob(d) / q[i].prob(d)))
    n_accepted = 0
    for i in range(1, k + 1):
        if i < k:
            mass = float(residual_mass(p[i], q[i], pi[i]).sum())
            remaining = mass + 1.0 - pi[i]
            h = mass / remaining if remaining > 0.0 else 1.0
        else:
            h = pi[k]
        if coins[i - 1] < h:
            n_accepted = i
    if n_accepted == k:
        return Verdict(k, p[k].sample(u))
    a = n_accepted
    correction = residual(p[a], q[a], pi[a]) or p[a]
    return Verdict(a, correction.sample(u))
