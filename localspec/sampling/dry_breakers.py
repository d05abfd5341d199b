"""DRY's sequence breakers as token ids: which tokens hold one, begin one, and what must follow.

After get_overlapping_token_sequences in llama.cpp's src/llama-sampler.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.llama.vocabulary import Vocabulary

__all__ = ["sequence_breakers"]

_MAX_BYTES, _MAX_TAIL = 40, 20


def sequence_breakers(
    vocabulary: Vocabulary, texts: Sequence[str]
) -> dict[int, list[tuple[int, ...]]]:
    """token -> tails: () where it holds a whole breaker; else what completes one behind it."""
    words = [vocabulary.spelled(token) for token in range(vocabulary.n_tokens)]
    found: dict[int, list[tuple[int, ...]]] = {}
    for text in texts:
        breaker = text.encode()[:_MAX_BYTES]
        for token, word in enumerate(words):
            if breaker in word:
                found.setdefault(token, []).append(())
                continue
            for n in _overlaps(word, breaker):
                tail = tuple(_tail(vocabulary, breaker[n:]))
                if tail and tail not in found.get(token, ()):
                    found.setdefault(token, []).append(tail)
    return found


def _overlaps(word: bytes, breaker: bytes) -> list[int]:
    """How many bytes of the breaker end the word, for each way that they can."""
    return [n for n in range(1, min(len(word), len(breaker))) if word.endswith(breaker[:n])] + (
        [len(word)] if len(word) < len(breaker) and breaker.startswith(word) and word else []
    )


def _tail(vocabulary: Vocabulary, rest: bytes) -> list[int]:
    try:
        return vocabulary.spell(rest.decode("utf-8").encode())[:_MAX_TAIL]
    except UnicodeDecodeError:  # the word ends within a character
        return []
