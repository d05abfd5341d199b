"""Which promise holds, case by case."""

from __future__ import annotations

import pytest

from localspec.session.recipe import promise_of

CASES = [
    # verifier, greedy, seeded, fixed, exact, cold: kind
    ("match", False, True, True, False, True, "bits"),
    ("match", False, True, False, True, True, "bits"),
    ("match", False, True, False, False, True, "near ties"),
    ("match", False, True, True, True, False, "near ties"),
    ("match", False, False, True, False, True, "bits"),  # the seed that was drawn is reported
    ("block", True, False, True, False, True, "bits"),
    ("rejection", False, True, True, False, True, "bits"),
    ("rejection", False, True, True, False, False, "near ties"),
    ("rejection", False, True, False, False, True, "law"),
    ("block", False, False, True, False, True, "law"),
    ("auto", False, False, True, False, True, "law"),
]


@pytest.mark.parametrize("case", CASES)
def test_the_promise(case: tuple[str, bool, bool, bool, bool, bool, str]) -> None:
    verifier, greedy, seeded, fixed, exact, cold, kind = case
    promise = promise_of(
        verifier=verifier, greedy=greedy, seeded=seeded, fixed_lengths=fixed, exact=exact, cold=cold
    )
    assert (promise.kind, promise.exact, promise.cold) == (kind, exact, cold)
    assert promise.words
