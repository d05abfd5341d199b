"""A. Output that differs from plain decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localspec.session.session import Session
from tests.cases.proof import shown_by
from tests.tiny.truth import Truth, write

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "of the"},
    {"role": "user", "content": "the end of <|im_end|> the"},
]


def test_greedy_text_parts_from_plain_text_at_near_ties_only(tiny_dir: Path) -> None:
    """300 tokens, K = 8. The first place where the ids part is judged by the target's own row: a
    gap above the tolerance fails and is told."""
    target = write(tiny_dir, "attention")
    truth = Truth(target)
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 300}
    with Session(target, write(tiny_dir, "attention", noise=0.1)) as session:
        got = session.complete([1, 270], drafter="model", n_draft=8, **options)
    assert got.stats.draft_n_accepted
    assert got.stats.draft_n_rejected
    truth.check([1, 270], got.token_ids, **options)
    wrong = min(set(range(265, 300)) - {got.token_ids[0]})
    with pytest.raises(AssertionError, match="its logit is"):
        truth.check([1, 270], [wrong, *got.token_ids[1:]], **options)
    truth.session.close()
    shown_by(
        "real.test_default_pair.test_longer_drafts_differ_at_near_ties_only",
        "real.test_default_pair.test_greedy_text_is_plain_but_for_near_ties",
        "tiny.test_exact_and_audit.test_an_audit_explains_a_near_tie",
    )


def test_what_is_promised_is_the_law_and_not_the_bytes() -> None:
    """The result says which promise holds; bits are promised in exact mode alone."""
    shown_by(
        "unit.test_promise.test_the_promise",
        "tiny.test_results.test_a_warm_cache_weakens_the_promise_and_is_told",
        "tiny.test_results.test_exact_mode_promises_bits_at_any_pace",
    )


@pytest.mark.parametrize("prompt", ["the end <|im_start|>", MESSAGES], ids=["text", "chat"])
def test_every_path_reads_the_same_prompt(pair: Session, prompt: Any) -> None:
    """Speculative, plain, n-gram and asked as ids (as a benchmark does): one tokeniser. What each
    decoded is read back from the caches."""
    ids = pair.encode(prompt)
    for drafter in ("none", "ngram", "model"):
        pair.clear_cache()
        n_draft = None if drafter == "none" else 2
        pair.complete(prompt, drafter=drafter, n_draft=n_draft, temperature=0.0, max_tokens=6)
        assert pair._target.ids[: len(ids)] == ids
    assert pair._draft is not None
    assert pair._draft.ids[: len(ids)] == ids
