"""The two small shapes that a drafter of one's own may have; the third is the Drafter protocol.

Knows nothing of how they are run: own_drafter.py does that, safely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from localspec.sampling.distribution import Distribution

__all__ = ["Guesser", "Predictor", "shape_of"]

_SHAPES = ("propose", "predict", "guess")


class Guesser(Protocol):
    """The least that a drafter needs: ids that may follow."""

    def guess(self, ids: Sequence[int], n_max: int) -> Sequence[int]:
        """Up to n_max ids (more are cut) to follow `ids`, the text so far; may be empty."""


class Predictor(Protocol):
    """A drafter that says how likely each next token is."""

    def predict(self, ids: Sequence[int]) -> Distribution | npt.NDArray[np.floating[Any]]:
        """The law of the token after `ids`: committed tokens, then those drafted in this round.

        A Distribution, or float probabilities of shape (n_vocab,); their sum is 1 to 1e-6.
        """


def shape_of(drafter: object) -> str | None:
    """`propose`, `predict` or `guess`, whichever the object has first; None for no drafter."""
    if isinstance(drafter, type):
        return None
    return next((name for name in _SHAPES if callable(getattr(drafter, name, None))), None)
