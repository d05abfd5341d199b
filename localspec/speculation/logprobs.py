"""Log-probabilities of the tokens of an answer and of its prompt, from the target's own rows.

`raw` is the log-softmax of the unprocessed logits; `processed` is the logarithm of the probability
under the whole chain, -inf for what it cuts off. Natural logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.sampling.distribution import Distribution

__all__ = ["LogprobReader", "TokenLogprob", "TopLogprob"]

Row = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the most probable tokens at a position. piece: the bytes it would add."""

    id: int
    piece: bytes
    logprob: float

    @property
    def text(self) -> str:
        """The piece for display alone; half a character shows as U+FFFD."""
        return self.piece.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, how probable the target held it, and what it held for most probable there.

    piece: the bytes it adds. logprob: None for the first token of a prompt, which nothing
    precedes. top: best first. source: `target`, `prompt`, or who drafted it (`model`, `ngram`,
    `grammar`). accepted: it was a draft that the target accepted.
    """

    id: int
    piece: bytes
    logprob: float | None
    top: tuple[TopLogprob, ...] = ()
    source: str = "target"
    accepted: bool = False

    @property
    def text(self) -> str:
        """The piece for display alone; half a character shows as U+FFFD."""
        return self.piece.decode("utf-8", "replace")


class LogprobReader:
    """Reads rows. n_top: alternatives for each token; processed: of the chain's distribution."""

    def __init__(
        self, n_top: int, piece: Callable[[int], bytes], *, processed: bool = False
    ) -> None:
        self._n_top = n_top
        self._piece = piece
        self.processed = processed

    def read(
        self,
        token: int,
        row: Row,
        law: Distribution | None,
        source: str = "target",
        *,
        accepted: bool = False,
    ) -> TokenLogprob:
        """row: the target's logits before the token, float32, shape (n_vocab,). law: p there."""
        if self.processed:
            assert law is not None
            logprob, top = self._of_law(token, law)
        else:
            logprob, top = self._of_row(token, row)
        return TokenLogprob(token, self._piece(token), logprob, top, source, accepted)

    def _of_row(self, token: int, row: Row) -> tuple[float, tuple[TopLogprob, ...]]:
        best = float(row.max())
        total = best + math.log(float(np.exp(row - np.float32(best)).sum(dtype=np.float64)))
        n = min(self._n_top, len(row))
        found = np.argpartition(row, len(row) - n)[len(row) - n :] if n else np.zeros(0, np.intp)
        found = found[np.lexsort((found, -row[found]))]
        top = tuple(self._top(int(i), float(row[i]) - total) for i in found)
        return float(row[token]) - total, top

    def _of_law(self, token: int, law: Distribution) -> tuple[float, tuple[TopLogprob, ...]]:
        order = np.argsort(-law.probs, kind="stable")[: self._n_top]
        top = tuple(self._top(int(law.ids[i]), _log(float(law.probs[i]))) for i in order)
        return _log(law.prob(token)), top

    def _top(self, token: int, logprob: float) -> TopLogprob:
        return TopLogprob(token, self._piece(token), logprob)


def _log(p: float) -> float:
    return math.log(p) if p > 0.0 else -math.inf
