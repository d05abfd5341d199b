"""The automaton against the plain search, and its cost per token."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from localspec.drafting.suffix_automaton import SuffixAutomaton


def longest_earlier(ids: Sequence[int]) -> tuple[int, int]:
    """Length and latest end of the longest suffix that occurred before, by looking everywhere."""
    n = len(ids)
    for length in range(n - 1, 0, -1):
        for end in range(n - 1, length - 1, -1):
            if ids[end - length : end] == ids[n - length :]:
                return length, end
    return 0, 0


def longest_within(query: Sequence[int], ids: Sequence[int]) -> int:
    for length in range(len(query), 0, -1):
        tail = query[len(query) - length :]
        if any(ids[end - length : end] == tail for end in range(length, len(ids) + 1)):
            return length
    return 0


@pytest.mark.parametrize("n_kinds", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(20))
def test_the_match_is_the_longest_and_the_most_recent(n_kinds: int, seed: int) -> None:
    rng = random.Random(seed)
    ids: list[int] = []
    automaton = SuffixAutomaton()
    for _ in range(40):
        ids.append(rng.randrange(n_kinds))
        automaton.extend(ids[-1:])
        match = automaton.match
        assert (match.length, match.end) == longest_earlier(ids)


@pytest.mark.parametrize("n_kinds", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(20))
def test_following_leaves_the_index_alone(n_kinds: int, seed: int) -> None:
    rng = random.Random(seed)
    ids = [rng.randrange(n_kinds) for _ in range(30)]
    automaton = SuffixAutomaton()
    automaton.extend(ids)
    match, state = None, None
    query = list(ids)
    for _ in range(8):
        query.append(rng.randrange(n_kinds))
        match, state = automaton.follow(match, state, query[-1])
        assert match.length == longest_within(query, ids)
        copied = ids[match.end - match.length : match.end]
        assert copied == query[len(query) - match.length :]
    assert automaton.ids == ids


@pytest.mark.parametrize("repetitive", [True, False])
def test_the_work_for_a_token_does_not_grow_with_the_text(
    repetitive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in states made and links walked, not in seconds."""
    steps = 0

    class Counting(SuffixAutomaton):
        def _state(self, following: dict[int, int], longest: int, link: int, end: int) -> int:
            nonlocal steps
            steps += 1
            return super()._state(following, longest, link, end)

    rng = random.Random(1)
    automaton = Counting()
    made = []
    for _ in range(4):
        before = steps
        automaton.extend(7 if repetitive else rng.randrange(50) for _ in range(4000))
        made.append(steps - before)
    assert max(made) <= 2 * 4000
    assert made[-1] <= 1.5 * made[0]
