"""Cases, section J: seeds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from localspec.session.session import Session


@pytest.mark.parametrize("verifier", ["match", "rejection", "block"])
@pytest.mark.parametrize("drafter", ["model", "ngram", "splice"])
def test_the_same_seed_gives_the_same_text_each_call(
    loose_pair: Session, verifier: str, drafter: str
) -> None:
    texts = {
        loose_pair.complete(
            "the and", temperature=2.0, seed=42, n_draft=3, max_tokens=30,
            verifier=verifier, drafter=drafter,
        ).text
        for _ in range(5)
    }  # fmt: skip
    assert len(texts) == 1


@pytest.mark.parametrize("seed", [None, -1])
def test_a_random_seed_differs_and_is_reported(loose_pair: Session, seed: int | None) -> None:
    first, second = (
        loose_pair.complete("the", temperature=2.0, seed=seed, max_tokens=20) for _ in range(2)
    )
    assert first.stats.seed != second.stats.seed
    again = loose_pair.complete("the", temperature=2.0, seed=first.stats.seed, max_tokens=20)
    assert again.stats.seed == first.stats.seed


def test_fresh_processes_draw_different_seeds() -> None:
    """The seed of the first answer comes from the operating system, not from a constant."""
    code = "from localspec.sampling.seeds import resolve_seed; print(resolve_seed(-1))"
    found = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        for _ in range(4)
    }
    assert len(found) == 4
