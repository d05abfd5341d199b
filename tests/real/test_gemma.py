"""Gemma 3 270M, whose window is 512 tokens: far behind it, what was refused leaves no trace.

In exact mode, so that the comparison is byte for byte: batches with the bits of single steps only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localspec.models.catalog import catalog
from localspec.models.references import local_path
from localspec.session.options import LoadOptions
from localspec.session.session import Session

pytestmark = pytest.mark.real

NAME = "gemma-3-270m-q4_k_m"
FACTS = [
    f"The lighthouse number {i} was built in {1800 + 7 * i} and its keeper had {i % 5} cats."
    for i in range(40)
]
PROMPT = "\n".join([*FACTS, *FACTS[:20], "The lighthouse number 20 was"])
MORE: dict[str, Any] = {"max_tokens": 120, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    path = local_path(catalog().files[NAME])
    if path is None:
        pytest.skip(f"{NAME} is not on this machine: `localspec models pull {NAME}` fetches it")
    with Session(path, path, LoadOptions(n_ctx=4096, exact=True)) as session:
        if not session.exact_sizes():
            pytest.skip("no batch size has the bits of single decodes on this machine")
        yield session


@pytest.mark.parametrize("temperature", [0.0, 1.2])
@pytest.mark.parametrize("drafter", ["ngram", "model", "splice"])
def test_past_the_window_text_is_plain_text(
    session: Session, drafter: str, temperature: float
) -> None:
    """Sampling refuses many of the draft's best guesses; copies break where the facts change."""
    model = session._target.model
    ids = session.encode(PROMPT)
    assert 0 < model.n_swa < len(ids) // 2
    options = {**MORE, "temperature": temperature, "seed": 3}
    plain = session.complete(ids, drafter="none", **options)
    n_draft = max(session.exact_sizes()) - 1
    ours = session.complete(ids, drafter=drafter, n_draft=n_draft, **options)
    assert ours.token_ids == plain.token_ids
    assert ours.stats.draft_n > 20
    if temperature and drafter != "ngram":
        assert ours.stats.draft_n_rejected > 3  # the years; the rest is the same in each line


def test_an_edited_prompt_cut_back_past_the_window(session: Session) -> None:
    ids = session.encode(PROMPT)
    edited = [*ids[:300], *ids[320:]]
    session.complete(ids, drafter="model", n_draft=1, temperature=0.0, max_tokens=30)
    warm = session.complete(edited, drafter="model", n_draft=1, temperature=0.0, max_tokens=60)
    assert warm.stats.cache_n == 300
    session.clear_cache()
    cold = session.complete(edited, drafter="none", temperature=0.0, max_tokens=60)
    same = sum(a == b for a, b in zip(warm.token_ids, cold.token_ids, strict=True))
    assert same == 60 or warm.token_ids[:5] == cold.token_ids[:5]
