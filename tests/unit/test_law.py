"""The output law of each verifier, computed exactly on a toy vocabulary, is the target's own.

Every draft is enumerated with its probability under q. A verifier is a black box that takes
uniform numbers: the chance of each of its verdicts is found by bisecting those numbers for the
places where the verdict changes. Verifiers that are wrong on purpose must fail the same check.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pytest

from localspec.decoding.verify import Verdict, block, match, rejection
from localspec.sampling.distribution import Distribution, residual

Prefix = tuple[int, ...]
Table = Mapping[Prefix, Distribution]
Judge = Callable[
    [Sequence[Distribution], Sequence[Distribution], Sequence[int], Sequence[float], float], Verdict
]
MatchJudge = Callable[[Sequence[Distribution], Sequence[int], Sequence[float]], Verdict]
Law = Mapping[Prefix, float]
DraftLaw = Callable[[Sequence[Distribution], Sequence[Distribution], Prefix], Law]

REFUSE = 1.0 - 2.0**-53
TOLERANCE = 1e-9


def random_law(rng: np.random.Generator, n_vocab: int) -> Distribution:
    return Distribution(np.arange(n_vocab, dtype=np.int32), rng.dirichlet(np.full(n_vocab, 0.8)))


def one_hot_law(rng: np.random.Generator, n_vocab: int) -> Distribution:
    return Distribution.one_hot(int(rng.integers(n_vocab)))


def sparse_law(rng: np.random.Generator, n_vocab: int) -> Distribution:
    ids = np.sort(rng.choice(n_vocab, n_vocab - 1, replace=False)).astype(np.int32)
    return Distribution(ids, rng.dirichlet(np.ones(n_vocab - 1)))


def zeros_law(rng: np.random.Generator, n_vocab: int) -> Distribution:
    """Zeros kept among the ids."""
    probs = rng.dirichlet(np.ones(n_vocab))
    probs[rng.integers(n_vocab)] = 0.0
    return Distribution(np.arange(n_vocab, dtype=np.int32), probs / probs.sum())


def half_law(half: int) -> Callable[[np.random.Generator, int], Distribution]:
    def law(rng: np.random.Generator, n_vocab: int) -> Distribution:
        ids = np.arange(n_vocab, dtype=np.int32)[half::2]
        return Distribution(ids, rng.dirichlet(np.ones(len(ids))))

    return law


def table(law: Callable, n_vocab: int, depth: int, seed: int) -> Table:
    """One distribution for each prefix of up to `depth` tokens."""
    rng = np.random.default_rng(seed)
    return {
        prefix: law(rng, n_vocab)
        for n in range(depth + 1)
        for prefix in itertools.product(range(n_vocab), repeat=n)
    }


def pair(kind: str, n_vocab: int, k: int, seed: int = 0) -> tuple[Table, Table]:
    p_law, q_law = {
        "real": (random_law, random_law),
        "one_hot": (random_law, one_hot_law),
        "both_one_hot": (one_hot_law, one_hot_law),
        "sparse_q": (random_law, sparse_law),
        "sparse_p": (sparse_law, random_law),
        "both_sparse": (sparse_law, sparse_law),
        "zeros": (zeros_law, zeros_law),
        "disjoint": (half_law(0), half_law(1)),
        "equal": (random_law, random_law),
    }[kind]
    p = table(p_law, n_vocab, k, seed)
    return p, p if kind == "equal" else table(q_law, n_vocab, k, seed + 1)


KINDS = (
    "real",
    "one_hot",
    "both_one_hot",
    "sparse_q",
    "sparse_p",
    "both_sparse",
    "zeros",
    "disjoint",
    "equal",
)


def end_of(holds: Callable[[float], bool], start: float = 0.0) -> float:
    """The end of the interval, from `start` on, where `holds`; it does not hold again after it."""
    if not holds(start):
        return start
    if holds(REFUSE):
        return 1.0
    low, high = start, REFUSE
    while high - low > 1e-14:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def pieces(value: Callable[[float], object]) -> list[tuple[float, float]]:
    """(midpoint, length) of the intervals of [0, 1) on which `value` is constant.

    For functions that take each value on one interval at most, such as an inverse CDF.
    """
    found = []
    start = 0.0
    while start < REFUSE:
        here = value(start)
        end = end_of(lambda x, here=here: value(x) == here, start)
        found.append(((start + end) / 2, end - start))
        start = end
    return found


def verdict_law(
    judge: Judge, p: Sequence[Distribution], q: Sequence[Distribution], draft: Prefix
) -> Law:
    """Probability of each output (accepted tokens, then one more) for one draft."""
    k = len(draft)

    def verdict(coins: Sequence[float], u: float = 0.5) -> Verdict:
        return judge(p, q, draft, coins, u)

    # position i passes when coins[i] < h[i], whatever the other coins are: with those before it
    # at 0 (pass) and those after it at 1 (refuse), it passes when i + 1 tokens are accepted
    h = [
        end_of(lambda x, i=i: verdict([0.0] * i + [x] + [REFUSE] * (k - i - 1)).n_accepted > i)
        for i in range(k)
    ]
    law: dict[Prefix, float] = defaultdict(float)
    for pattern in itertools.product((True, False), repeat=k):
        weight = float(np.prod([a if ok else 1.0 - a for a, ok in zip(h, pattern, strict=True)]))
        if weight == 0.0:
            continue
        coins = [a / 2 if ok else (1.0 + a) / 2 for a, ok in zip(h, pattern, strict=True)]
        for u, length in pieces(lambda u, coins=coins: verdict(coins, u)):
            found = verdict(coins, u)
            law[(*draft[: found.n_accepted], found.token)] += weight * length
    return law


def match_law(
    judge: MatchJudge, p: Sequence[Distribution], q: Sequence[Distribution], draft: Prefix
) -> Law:
    """The same for a verifier with one uniform number for each position.

    Position i is looked at only when those before it match, so each is bisected with the
    earlier ones held at a value that matches; later numbers cannot matter.
    """
    k = len(draft)
    law: dict[Prefix, float] = defaultdict(float)
    matching: list[float] = []
    reached = 1.0
    for i in range(k + 1):

        def verdict(x: float, i: int = i) -> Verdict:
            return judge(p, draft, [*matching, x, *[0.5] * (k - i)])

        # what follows position i is drawn from the numbers after it, so it is no verdict on i
        def seen(x: float, i: int = i) -> tuple[int, int]:
            found = verdict(x)
            return (i + 1, -1) if found.n_accepted > i else (i, found.token)

        onward = None
        for x, length in pieces(seen):
            n, token = seen(x)
            if n > i:
                onward = (x, length)
            else:
                law[(*draft[:i], token)] += reached * length
        if onward is None:
            break
        matching.append(onward[0])
        reached *= onward[1]
    return law


def drafts(q: Table, n_vocab: int, k: int) -> list[tuple[Prefix, float]]:
    """Every draft that q can make, with its probability."""
    found = []
    for draft in itertools.product(range(n_vocab), repeat=k):
        weight = float(np.prod([q[draft[:i]].prob(d) for i, d in enumerate(draft)]))
        if weight > 0.0:
            found.append((draft, weight))
    return found


def output_law(draft_law: DraftLaw, p: Table, q: Table, n_vocab: int, k: int) -> Law:
    """Exact law of what one round puts out."""
    law: dict[Prefix, float] = defaultdict(float)
    for draft, weight in drafts(q, n_vocab, k):
        ps = [p[draft[:i]] for i in range(k + 1)]
        qs = [q[draft[:i]] for i in range(k)]
        for output, probability in draft_law(ps, qs, draft).items():
            law[output] += weight * probability
    return law


def extended(law: Law, p: Table, length: int) -> Law:
    """The law of the first `length` tokens when plain sampling from p goes on."""
    full: dict[Prefix, float] = defaultdict(float)
    for output, probability in law.items():
        if len(output) >= length:
            full[output[:length]] += probability
            continue
        follow = p[output]
        part = {(*output, int(x)): probability * follow.prob(int(x)) for x in follow.ids}
        for longer, more in extended(part, p, length).items():
            full[longer] += more
    return full


def assert_lossless(law: Law, p: Table, n_vocab: int, k: int) -> None:
    got = extended(law, p, k + 1)
    expected = extended({(): 1.0}, p, k + 1)
    assert sum(got.values()) == pytest.approx(1.0, abs=TOLERANCE)
    for sequence in itertools.product(range(n_vocab), repeat=k + 1):
        assert got.get(sequence, 0.0) == pytest.approx(
            expected.get(sequence, 0.0), abs=TOLERANCE
        ), sequence


SIZES = ((4, 0), (4, 1), (4, 2), (3, 3))
VERIFIERS = {
    "match": partial(match_law, match),
    "rejection": partial(verdict_law, rejection),
    "block": partial(verdict_law, block),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_vocab", "k"), SIZES)
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_output_law_is_the_targets(verifier, n_vocab, k, kind):
    p, q = pair(kind, n_vocab, k)
    assert_lossless(output_law(VERIFIERS[verifier], p, q, n_vocab, k), p, n_vocab, k)


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("seed", range(10, 16))
def test_output_law_is_the_targets_for_other_tables(verifier, seed):
    p, q = pair("real", 3, 3, seed)
    assert_lossless(output_law(VERIFIERS[verifier], p, q, 3, 3), p, 3, 3)


def sharpened(law: Distribution) -> Distribution:
    """The same law at temperature 1/2."""
    return Distribution(law.ids, law.probs**2 / (law.probs**2).sum())


def replaced_residual(p, q, draft, coins, u):
    found = rejection(p, q, draft, coins, u)
    return Verdict(found.n_accepted, p[found.n_accepted].sample(u))


def unprocessed_q(p, q, draft, coins, u):
    return rejection(p, [sharpened(law) for law in q], draft, coins, u)


def unprocessed_p(p, q, draft, coins, u):
    return rejection([sharpened(law) for law in p], q, draft, coins, u)


def inverted_ratio(p, q, draft, coins, u):
    for i, d in enumerate(draft):
        if coins[i] * p[i].prob(d) >= q[i].prob(d):
            return Verdict(i, (residual(p[i], q[i]) or p[i]).sample(u))
    return Verdict(len(draft), p[len(draft)].sample(u))


def accepts_all(p, q, draft, coins, u):
    return Verdict(len(draft), p[len(draft)].sample(u))


def bonus_from_the_row_before(p, q, draft, coins, u):
    found = rejection(p, q, draft, coins, u)
    k = len(draft)
    return Verdict(k, p[max(0, k - 1)].sample(u)) if found.n_accepted == k else found


def plain_residual_in_block(p, q, draft, coins, u):
    """norm(max(0, p − q)) where block needs π_a·p."""
    found = block(p, q, draft, coins, u)
    a = found.n_accepted
    return found if a == len(draft) else Verdict(a, (residual(p[a], q[a]) or p[a]).sample(u))


def block_keeps_the_last(p, q, draft, coins, u):
    """h_K = 1."""
    return block(p, q, draft, [*coins[:-1], 0.0] if coins and coins[-1] < REFUSE else coins, u)


def block_stops_at_first_refusal(p, q, draft, coins, u):
    """Takes the leading run of passes for the largest one."""
    k = len(draft)
    for i in range(k):
        alone = [REFUSE] * k
        alone[i] = coins[i]
        if block(p, q, draft, alone, u).n_accepted <= i:
            return block(p, q, draft, [*coins[:i], *[REFUSE] * (k - i)], u)
    return block(p, q, draft, coins, u)


@pytest.mark.parametrize(
    "judge",
    [
        replaced_residual,
        unprocessed_q,
        unprocessed_p,
        inverted_ratio,
        accepts_all,
        bonus_from_the_row_before,
        plain_residual_in_block,
        block_keeps_the_last,
        block_stops_at_first_refusal,
    ],
)
def test_wrong_verifier_is_found_out(judge):
    p, q = pair("real", 4, 2)
    with pytest.raises(AssertionError):
        assert_lossless(output_law(partial(verdict_law, judge), p, q, 4, 2), p, 4, 2)


def match_keeps_the_refused(p, draft, u):
    """Puts the draft's token where the target's own belongs."""
    found = match(p, draft, u)
    a = found.n_accepted
    return Verdict(a, draft[a]) if a < len(draft) else found


def match_off_by_one(p, draft, u):
    return match([p[0], *p[:-1]], draft, u)


def match_redraws(p, draft, u):
    """Draws the correction afresh, so that it can be the refused token again."""
    found = match(p, draft, u)
    a = found.n_accepted
    return Verdict(a, p[a].sample(1.0 - u[a])) if a < len(draft) else found


@pytest.mark.parametrize("judge", [match_keeps_the_refused, match_off_by_one, match_redraws])
def test_wrong_match_is_found_out(judge):
    p, q = pair("real", 4, 2)
    with pytest.raises(AssertionError):
        assert_lossless(output_law(partial(match_law, judge), p, q, 4, 2), p, 4, 2)


def trimmed_after_the_draw(judge):
    """Drops a drafted token after seeing which one was drawn."""

    def wrong(p, q, draft, coins, u):
        k = len(draft)
        if k and q[k - 1].prob(draft[-1]) < 0.4:
            return judge(p[:-1], q[:-1], draft[:-1], coins[:-1], u)
        return judge(p, q, draft, coins, u)

    return wrong


@pytest.mark.parametrize("judge", [rejection, block])
def test_trimming_a_sampled_draft_by_the_token_drawn_is_found_out(judge):
    p, q = pair("real", 4, 2)
    law = output_law(partial(verdict_law, trimmed_after_the_draw(judge)), p, q, 4, 2)
    with pytest.raises(AssertionError):
        assert_lossless(law, p, 4, 2)


def expected_accepted(judge: Judge, p: Table, q: Table, n_vocab: int, k: int) -> float:
    law = output_law(partial(verdict_law, judge), p, q, n_vocab, k)
    return sum((len(output) - 1) * probability for output, probability in law.items())


@pytest.mark.parametrize("seed", range(6))
def test_block_keeps_at_least_as_many_as_rejection(seed):
    p, q = pair("real", 3, 3, seed)
    by_block = expected_accepted(block, p, q, 3, 3)
    by_rejection = expected_accepted(rejection, p, q, 3, 3)
    assert by_block >= by_rejection - TOLERANCE
    assert by_block > by_rejection + 1e-3  # these tables do show the gain


def test_block_gains_nothing_with_a_deterministic_draft():
    p, q = pair("one_hot", 3, 3)
    assert expected_accepted(block, p, q, 3, 3) == pytest.approx(
        expected_accepted(rejection, p, q, 3, 3), abs=TOLERANCE
    )


@pytest.mark.parametrize("judge", [rejection, block])
def test_an_equal_draft_is_kept_whole(judge):
    p, q = pair("equal", 3, 3)
    assert expected_accepted(judge, p, q, 3, 3) == pytest.approx(3.0, abs=TOLERANCE)


@pytest.mark.parametrize("judge", [rejection, block])
def test_a_disjoint_draft_is_never_kept(judge):
    p, q = pair("disjoint", 4, 2)
    assert expected_accepted(judge, p, q, 4, 2) == 0.0


def test_first_token_is_kept_with_the_overlap_of_p_and_q():
    p, q = pair("real", 4, 1)
    overlap = float(np.minimum(p[()].probs, q[()].probs).sum())
    assert expected_accepted(rejection, p, q, 4, 1) == pytest.approx(overlap, abs=TOLERANCE)
