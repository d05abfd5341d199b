"""Plain and speculative greedy side by side: identical, or where and by how little they part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.decoding.events import Finished, Round
from localspec.session.session import Prompt, Session

__all__ = ["Audit", "audit"]

NOISE = 1.0  # logits; the largest difference between batch shapes seen was 0.7 (Q4_K_M on a CPU)


@dataclass(frozen=True, slots=True)
class Gap:
    """The best two tokens of one row and how far apart they are, in logits."""

    best: int
    second: int
    gap: float

    @classmethod
    def of(cls, row: npt.NDArray[np.float32]) -> Gap:
        """From logits, shape (n_vocab,)."""
        best, second = (int(i) for i in np.argsort(-row, kind="stable")[:2])
        return cls(best, second, float(row[best] - row[second]))


@dataclass(frozen=True, slots=True)
class Audit:
    """What the comparison found.

    n_same: answer tokens that are the same. position: of the first difference in the answer,
    None when there is none. plain, batched: the row there, decoded alone and in the batch of
    `batch_size` tokens that the round used. verdict: `identical`, `near tie` or `bug`.
    n_drafted: tokens drafted until then; where it is 0 the comparison shows little, and notes
    may say why.
    """

    n_same: int
    position: int | None
    plain_token: int | None
    our_token: int | None
    plain: Gap | None
    batched: Gap | None
    batch_size: int
    verdict: str
    n_drafted: int = 0
    notes: tuple[str, ...] = ()


def audit(session: Session, prompt: Prompt, **options: Any) -> Audit:
    """Decode greedily both ways. options: as for Session.stream, without a temperature."""
    options = {**options, "temperature": 0.0}
    plain_options = {
        name: value
        for name, value in options.items()
        if name not in ("n_draft", "n_draft_max", "verifier")
    }
    plain_options["drafter"] = "none"
    session.clear_cache()
    plain = session.complete(prompt, **plain_options)
    session.clear_cache()
    ours: list[int] = []
    n_drafted = 0
    notes: tuple[str, ...] = ()
    stream = session.stream(prompt, **options)
    for event in stream:
        if isinstance(event, Finished):
            ours = list(event.token_ids)
            notes = event.stats.notes
            break
        if not isinstance(event, Round):
            continue
        before = len(ours)
        n_drafted += event.n_draft
        ours += [token.id for token in event.tokens if token.committed]
        at = _first_difference(plain.token_ids, ours)
        if at is not None:
            stream.close()  # type: ignore[attr-defined]
            found = _explain(session, prompt, plain.token_ids, ours, at, event, before)
            return replace(found, n_drafted=n_drafted)
    if tuple(ours) != plain.token_ids:  # one text is the beginning of the other
        n = min(len(ours), len(plain.token_ids))
        return Audit(n, n, _at(plain.token_ids, n), _at(ours, n), None, None, 0, "bug")
    return Audit(len(ours), None, None, None, None, None, 0, "identical", n_drafted, notes)


def _explain(
    session: Session,
    prompt: Prompt,
    plain_ids: tuple[int, ...],
    ours: list[int],
    at: int,
    round_: Round,
    before: int,
) -> Audit:
    prompt_ids = session.encode(prompt)
    drafted = [token.id for token in round_.tokens[: round_.n_draft]]
    committed = [*prompt_ids, *ours[:before]]
    rows = session.target_rows(committed[:-1], [committed[-1], *drafted])
    batched = Gap.of(rows[at - before])
    session.clear_cache()
    session.complete(prompt_ids, temperature=0.0, drafter="none", max_tokens=at)
    same = [*prompt_ids, *plain_ids[:at]]
    plain = Gap.of(session.target_rows(same[:-1], same[-1:])[0])
    explained = (
        ours[at] == batched.best and plain_ids[at] == plain.best and plain.gap < NOISE
    ) and not session.exact
    verdict = "near tie" if explained else "bug"
    size = len(drafted) + 1
    return Audit(at, at, plain_ids[at], ours[at], plain, batched, size, verdict)


def _first_difference(plain: tuple[int, ...], ours: list[int]) -> int | None:
    for i, (a, b) in enumerate(zip(plain, ours, strict=False)):
        if a != b:
            return i
    return None


def _at(ids: tuple[int, ...] | list[int], i: int) -> int | None:
    return ids[i] if i < len(ids) else None
