"""What an answer must be: the ids of plain decoding in a cold session, near ties apart.

Batches of other shapes sum in another order, so that logits differ in their last bits; where two
tokens are that close, either is right, and what follows is another text. Such a place is told from
a fault by the target's own single-token row there, and by how far such rows move on this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.sampling.chain import distribution
from localspec.sampling.seeds import position_uniform
from localspec.session.options import Options, parse
from localspec.session.session import Session
from tests import tiny_models
from tests.batch_noise import batch_noise

__all__ = ["KINDS", "RECURRENT", "Truth", "assert_same_text", "write"]

KINDS: dict[str, Callable[..., Path]] = {
    "attention": tiny_models.write_llama,
    "window": tiny_models.write_gemma_swa,
    "experts": tiny_models.write_moe,
    "mamba": tiny_models.write_mamba,
    "jamba": tiny_models.write_jamba,
    "lfm2": tiny_models.write_lfm2,
}
RECURRENT = ("mamba", "jamba", "lfm2")


def write(folder: Path, kind: str, **how: Any) -> Path:
    """A model file of this kind; the same arguments give the same file."""
    name = "-".join([kind, *(f"{key}{value}" for key, value in sorted(how.items()))])
    path = folder / f"{name}.gguf"
    return path if path.exists() else KINDS[kind](path, vocab="bytes", **how)


class Truth:
    """Answers of one target, each from an empty cache and without a draft."""

    def __init__(self, target: Path) -> None:
        self.session = Session(target)
        self.n_near_ties = 0
        self._known: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def answer(self, ids: Sequence[int], **options: Any) -> tuple[int, ...]:
        """The ids that plain decoding gives; options as for Session.stream, seed included."""
        options = {key: value for key, value in options.items() if key not in _FREE}
        key = (tuple(ids), *sorted(options.items()))
        if key not in self._known:
            self.session.clear_cache()
            found = self.session.complete(list(ids), drafter="none", **options)
            self._known[key] = found.token_ids
        return self._known[key]

    def check(self, ids: Sequence[int], got: Sequence[int], **options: Any) -> None:
        """Fail unless `got` is the true answer, or leaves it at a near tie."""
        self.n_near_ties += assert_same_text(
            self.session, ids, got, self.answer(ids, **options), **options
        )


def assert_same_text(
    session: Session, ids: Sequence[int], got: Sequence[int], true: Sequence[int], **options: Any
) -> bool:
    """False where `got` is `true`; True where it leaves it at a near tie; else AssertionError.

    session: any of this target. options: as for Session.stream, those of the answer.
    """
    if list(got) == list(true):
        return False
    at = next(
        (i for i, (a, b) in enumerate(zip(got, true, strict=False)) if a != b),
        min(len(got), len(true)),
    )
    assert at < min(len(got), len(true)), f"the answer ends at {len(got)}, not at {len(true)}"
    why = _no_tie(session, [*ids, *true[:at]], got[at], true[at], at, options)
    assert why is None, f"token {at} is {got[at]}, not {true[at]}: {why}"
    return True


def _no_tie(
    session: Session, before: list[int], got: int, true: int, at: int, options: dict[str, Any]
) -> str | None:
    noise = batch_noise(session)
    row = session.target_rows(before[:-1], before[-1:])[0]
    known = {key: value for key, value in options.items() if key not in _FREE}
    params = parse(Options, known).sampling()
    if params.greedy:
        open_ = replace(params, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
        p = distribution(row, open_, before)
        gap = math.log(p.prob(true) / p.prob(got))
        return None if abs(gap) <= noise.logprob else f"its logit is {gap:.3g} lower"
    p = distribution(row, params, before)
    u = position_uniform(options["seed"], at)
    near = {
        p.sample(min(max(0.0, u + shift), 1.0 - 1e-12)) for shift in (-noise.chance, noise.chance)
    }
    return None if got in near else f"u = {u:.6f} is no boundary between the two"


_FREE = ("drafter", "n_draft", "n_draft_max", "verifier", "n_alternatives")
