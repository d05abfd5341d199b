"""Log-probabilities of the default pair, against the target's own rows in batches of equal shape.

LOCALSPEC_PROMPTS=50 python -m pytest tests/real/test_logprobs.py -s
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from localspec.decoding.events import Finished, Round
from localspec.session.session import Session
from tests.batch_noise import log_softmax
from tests.tiny.test_logprobs import alike_rows

pytestmark = pytest.mark.real

N_PROMPTS = int(os.environ.get("LOCALSPEC_PROMPTS", "3"))
SUITE = Path(__file__).parents[2] / "localspec" / "bench" / "prompts.jsonl"


def prompts() -> list[str]:
    rows = [json.loads(line) for line in SUITE.read_text("utf-8").splitlines() if line.strip()]
    texts = [text for row in rows for text in [row.get("prompt") or row["turns"][0]]]
    return [f"{texts[i % len(texts)][:300]} ({i})" for i in range(N_PROMPTS)]


def test_every_logprob_is_plain_decodings_at_equal_batch_shape(session: Session) -> None:
    worst, n_tokens, n_accepted = 0.0, 0, 0
    for i, prompt in enumerate(prompts()):
        ids = session.encode([{"role": "user", "content": prompt}])
        events = list(session.stream(ids, max_tokens=12, seed=i, n_draft=3, logprobs=5))
        got = events[-1]
        assert isinstance(got, Finished)
        assert got.logprobs is not None
        rounds = [event for event in events if isinstance(event, Round)]
        alike = [log_softmax(row) for row in alike_rows(session, [*ids, *got.token_ids], rounds)]
        assert len(alike) >= len(got.logprobs) == len(got.token_ids)
        for entry, row in zip(got.logprobs, alike, strict=False):
            assert entry.logprob is not None
            told = [(entry.id, entry.logprob), *((top.id, top.logprob) for top in entry.top)]
            worst = max(worst, *(abs(value - float(row[token])) for token, value in told))
            n_accepted += entry.accepted
        n_tokens += len(got.token_ids)
    print(f"{N_PROMPTS} prompts, {n_tokens} tokens, {n_accepted} drafted: off by {worst:.1e}")
    assert worst < 1e-5
    assert n_accepted > N_PROMPTS
