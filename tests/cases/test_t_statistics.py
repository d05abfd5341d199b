"""T. Statistics and benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.decoding.events import Finished, Prefill, Round
from localspec.session.session import Session
from tests.cases.proof import shown_by

PROMPT = "the and of in is"
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40}


@pytest.mark.parametrize("n_draft", [0, 1, 4, 8])
def test_tokens_are_counted_by_ids_and_prefill_apart(pair: Session, n_draft: int) -> None:
    """Chunks of a stream are not tokens: four drafted ones arrive as one chunk."""
    pair.clear_cache()
    events = list(pair.stream(PROMPT, n_draft=n_draft, **GREEDY))
    finished = events[-1]
    assert isinstance(finished, Finished)
    stats = finished.stats
    rounds = [event for event in events if isinstance(event, Round)]
    assert stats.predicted_n == len(finished.token_ids) == 40
    assert stats.n_passes == len(rounds)
    if n_draft:
        assert len([event for event in rounds if event.text]) < stats.predicted_n
    assert stats.cache_n + stats.prompt_n == len(pair.encode(PROMPT))
    assert any(isinstance(event, Prefill) for event in events)
    assert stats.predicted_s == pytest.approx(sum(r.elapsed_s for r in rounds))
    assert stats.draft_s + stats.verify_s <= stats.predicted_s
    assert stats.predicted_per_second == pytest.approx(stats.predicted_n / stats.predicted_s)
    assert stats.timings()["predicted_ms"] == pytest.approx(stats.predicted_s * 1e3)


def test_drafts_that_were_never_verified_do_not_count(pair: Session) -> None:
    """α = accepted / judged; what stood behind a refusal was never looked at."""
    result = pair.complete(PROMPT, n_draft=6, **GREEDY)
    verdicts = [token.verdict for round_ in result.rounds for token in round_.tokens[:-1]]
    accepted, rejected = verdicts.count("accepted"), verdicts.count("rejected")
    discarded = verdicts.count("discarded")
    stats = result.stats
    assert (stats.draft_n_accepted, stats.draft_n_rejected) == (accepted, rejected)
    assert rejected > 0
    assert discarded > 0
    assert stats.draft_n == accepted + rejected + discarded
    assert stats.acceptance_rate == accepted / (accepted + rejected)


def test_drafts_thrown_away_before_verification_are_no_drafts(loose_pair: Session) -> None:
    """The controller trims a draft that does not pay: what it cut is in no count."""
    result = loose_pair.complete(PROMPT, temperature=0.0, max_tokens=40)
    assert result.stats.draft_n == sum(len(round_.tokens) - 1 for round_ in result.rounds)


def test_nothing_judged_is_no_rate_rather_than_zero(pair: Session) -> None:
    assert pair.complete(PROMPT, drafter="none", **GREEDY).stats.acceptance_rate is None


def test_repeats_can_be_made_cold_in_both_models(pair: Session) -> None:
    """With the caches kept only the first run would read the prompt."""
    pair.complete(PROMPT, n_draft=3, **GREEDY)
    assert pair.complete(PROMPT, n_draft=3, **GREEDY).stats.prompt_n == 1
    for _ in range(3):
        pair.clear_cache()
        assert pair._draft is not None
        assert not pair._draft.ids
        stats = pair.complete(PROMPT, n_draft=3, **GREEDY).stats
        assert (stats.cache_n, stats.prompt_n) == (0, len(pair.encode(PROMPT)))


def test_batches_count_each_prompt_cold(pair: Session) -> None:
    results = pair.complete_many([PROMPT] * 3, n_draft=3, **GREEDY)
    assert [result.timings["cache_n"] for result in results] == [0, 0, 0]


def test_shown_elsewhere() -> None:
    """The warm-up of each configuration with a K+1 batch, the rotated order and medians with their
    spread belong to the bench, and its tests hold them.
    """
    shown_by(
        "tiny.test_engine.test_events_tell_the_whole_story",
        "tiny.test_bench.test_the_rows_tell_what_was_measured",
        "unit.test_chat.test_figures_are_sums_of_the_rounds",
        "unit.test_chat.test_unmeasured_figures_are_not_made_up",
    )
