"""Token ids cut into chunks, of which the second half is scored.

The cut is that of llama-perplexity (llama.cpp, tools/perplexity/perplexity.cpp), so that figures
compare: whole chunks of n_ctx tokens side by side; what is left at the end is not used; row i of
a chunk is scored on token i + 1, for i from n_ctx / 2 to n_ctx - 2, so that every scored token has
at least half a chunk before it. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.errors import InvalidOptionError, TextError

__all__ = ["Chunks", "chunk", "require_bytes"]

MIN_N_CTX = 16


@dataclass(frozen=True, slots=True)
class Chunks:
    """ids: int32, shape (n_chunks, n_ctx), without the BOS that replaces a chunk's first id."""

    ids: npt.NDArray[np.int32]

    @property
    def n_chunks(self) -> int:
        """How many there are."""
        return int(self.ids.shape[0])

    @property
    def n_ctx(self) -> int:
        """Tokens of each."""
        return int(self.ids.shape[1])

    @property
    def first(self) -> int:
        """The first row of a chunk that is scored."""
        return self.n_ctx // 2

    @property
    def n_scored(self) -> int:
        """Tokens scored, of all chunks together."""
        return self.n_chunks * (self.n_ctx - 1 - self.first)

    def head(self, n_chunks: int | None) -> Chunks:
        """The first n_chunks, at most; None is all."""
        return Chunks(self.ids[:n_chunks])


def require_bytes(n_bytes: int, n_ctx: int, text_name: str) -> None:
    """Raises TextError where no vocabulary can make two chunks of so little text."""
    if n_bytes < 2 * n_ctx:  # a token stands for a byte at least
        raise TextError(
            f"the text {text_name} has {n_bytes:,} bytes, and two chunks of {n_ctx:,} tokens need "
            f"about {8 * n_ctx:,}: give a longer text"
        )


def chunk(ids: Sequence[int], n_ctx: int, text_name: str) -> Chunks:
    """Cut `ids`. Raises TextError for fewer than two chunks, InvalidOptionError for tiny ones."""
    if n_ctx < MIN_N_CTX:
        raise InvalidOptionError(f"a chunk of {n_ctx} tokens is too short: use {MIN_N_CTX} or more")
    n_chunks = len(ids) // n_ctx
    if n_chunks < 2:
        raise TextError(
            f"the text {text_name} has {len(ids):,} tokens, and two chunks of {n_ctx:,} need "
            f"{2 * n_ctx:,}: give a longer text, or a smaller n_ctx"
        )
    return Chunks(np.array(ids[: n_chunks * n_ctx], np.int32).reshape(n_chunks, n_ctx))
