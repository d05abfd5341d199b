"""Cases, section L: log-probabilities. More of them in tests/tiny/test_logprobs.py."""

from __future__ import annotations

import pytest

from localspec.session.session import Session
from tests.batch_noise import batch_noise
from tests.tiny.truth import assert_same_text


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_values_come_from_the_targets_row_accepted_or_not(
    loose_pair: Session, temperature: float
) -> None:
    """Not 1 for everything: those of plain decoding, but for what another batch shape moves.

    At equal shape, and to 1e-5: tests/tiny/test_logprobs.py.
    """
    noise = batch_noise(loose_pair).logprob
    options = {"temperature": temperature, "seed": 9, "max_tokens": 24, "logprobs": 3}
    plain = loose_pair.complete("the and", drafter="none", **options)
    ours = loose_pair.complete("the and", n_draft=4, **options)
    assert ours.logprobs is not None
    assert plain.logprobs is not None
    assert {entry.accepted for entry in ours.logprobs} == {True, False}
    assert not any(entry.accepted for entry in plain.logprobs)
    ids = loose_pair.encode("the and")
    assert_same_text(loose_pair, ids, ours.token_ids, plain.token_ids, **options)
    for a, b in zip(ours.logprobs, plain.logprobs, strict=True):
        if a.id != b.id:
            break
        assert a.logprob == pytest.approx(b.logprob, abs=noise)
        assert [t.logprob for t in a.top] == pytest.approx([t.logprob for t in b.top], abs=noise)
    assert min(entry.logprob for entry in ours.logprobs if entry.logprob is not None) < -0.05
