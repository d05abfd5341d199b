"""Do target and draft mean the same by the same token id? Compared by text, before any load."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.errors import VocabularyMismatchError
from localspec.gguf.header import GGUFHeader

__all__ = ["VocabularyMatch", "compare_vocabularies"]

_ADVICE = (
    "Choose a draft of the same family, or use `--draft none` or `--drafter ngram` (n-gram drafts "
    "need no model)"
)


@dataclass(frozen=True, slots=True)
class VocabularyMatch:
    """n_shared: ids that both have. differing_ids: those of them that are spelled differently."""

    n_shared: int
    differing_ids: frozenset[int]


def compare_vocabularies(
    target: GGUFHeader,
    draft: GGUFHeader,
    *,
    roles: tuple[str, str] = ("target", "draft"),
    advice: str = _ADVICE,
) -> VocabularyMatch:
    """Compare token text by id over the shared ids; padding rows beyond them do not matter.

    Up to one id in a thousand may differ (at least one); drafts end there. Beyond that, or when
    one vocabulary is more than 128 ids and 1 % longer, raises VocabularyMismatchError, which
    calls the two files by their roles and ends with the advice.
    """
    n_shared = min(target.n_vocab, draft.n_vocab)
    longer = max(target.n_vocab, draft.n_vocab) - n_shared
    if target.token_bytes == draft.token_bytes:
        return VocabularyMatch(n_shared, frozenset())
    differing = [
        i
        for i, (a, b) in enumerate(zip(target.token_texts(), draft.token_texts(), strict=False))
        if a != b
    ]
    if len(differing) <= max(1, n_shared // 1000) and longer <= max(128, n_shared // 100):
        return VocabularyMatch(n_shared, frozenset(differing))
    raise VocabularyMismatchError(f"{_refusal(target, draft, differing, roles)}. {advice}")


def _refusal(
    target: GGUFHeader, draft: GGUFHeader, differing: list[int], roles: tuple[str, str]
) -> str:
    sides = " and ".join(
        f"{role} {header.name} ({header.path.name}, tokenizer {header.tokenizer_model}, "
        f"{header.n_vocab:,} tokens)"
        for role, header in zip(roles, (target, draft), strict=True)
    )
    if differing:
        first = differing[0]
        a, b = (_text(header, first) for header in (target, draft))
        where = f"{len(differing):,} ids differ, the first is {first}: {a!r} and {b!r}"
    else:
        where = "the shared ids agree, but the lengths differ too much"
    return f"{sides} have different vocabularies: {where}"


def _text(header: GGUFHeader, token: int) -> str:
    texts = header.token_texts()
    for _ in range(token):
        next(texts)
    return next(texts).decode("utf-8", "replace")
