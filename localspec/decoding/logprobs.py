"""Log-probabilities of the tokens of an answer and of its prompt, from the target's own rows.

`raw` is the log-softmax of the unprocessed logits; `processed` is the logarithm of the probability
under the whole chain, -inf for what it cuts off. Natural logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from localspec.sampling.distribution import Distribution
from localspec.sampling.raw_law import RawLaw

__all__ = ["LogprobReader", "TokenLogprob", "TopLogprob"]


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
        raw: RawLaw,
        law: Distribution | None,
        source: str = "target",
        *,
        accepted: bool = False,
    ) -> TokenLogprob:
        """raw: of the target's row before the token. law: p there."""
        if self.processed:
            assert law is not None
            logprob, top = self._of_law(token, law)
        else:
            logprob, top = self._of_raw(token, raw)
        return TokenLogprob(token, self._piece(token), logprob, top, source, accepted)

    def _of_raw(self, token: int, raw: RawLaw) -> tuple[float, tuple[TopLogprob, ...]]:
        best = raw.best(self._n_top).tolist()
        return raw.logprob(token), tuple(self._top(i, raw.logprob(i)) for i in best)

    def _of_law(self, token: int, law: Distribution) -> tuple[float, tuple[TopLogprob, ...]]:
        order = np.argsort(-law.probs, kind="stable")[: self._n_top]
        top = tuple(self._top(int(law.ids[i]), _log(float(law.probs[i]))) for i in order)
        return _log(law.prob(token)), top

    def _top(self, token: int, logprob: float) -> TopLogprob:
        return TopLogprob(token, self._piece(token), logprob)


def _log(p: float) -> float:
    return math.log(p) if p > 0.0 else -math.inf
