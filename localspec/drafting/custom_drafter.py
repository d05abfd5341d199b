"""Drafters that others wrote: the shapes they may have, and a guard that makes each of them safe.

A guesser and a predictor are the two small shapes; the third is the Drafter protocol itself.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from localspec.decoding.controller import Pace, Source
from localspec.decoding.draft import Draft, Drafter
from localspec.errors import DrafterError, LocalspecError
from localspec.llama.context import Cancelled
from localspec.sampling.distribution import Distribution

__all__ = ["GuardedDrafter", "Guesser", "MeteredPace", "Predictor", "shape_of"]

_SHAPES = ("propose", "predict", "guess")
_N_MAX = 64  # rows of one verification; a longer guess is cut
_LIKE_A_MATCH_OF = 8  # tokens: what a guess is trusted for until there is experience
_SUM_TOLERANCE = 1e-6


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


class MeteredPace:
    """The pace itself, and `n_granted`: tokens that take() and copy() allowed."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.n_granted = 0

    def source(self, match_length: int, n_available: int, n_missing: int | None) -> Source:
        """As the pace says."""
        return self._pace.source(match_length, n_available, n_missing)

    def another(self) -> bool:
        """As the pace says."""
        return self._pace.another()

    def take(self, confidence: float) -> bool:
        """As the pace says, counted."""
        granted = self._pace.take(confidence)
        self.n_granted += granted
        return granted

    def copy(self, match_length: int, n_available: int) -> int:
        """As the pace says, counted."""
        n = self._pace.copy(match_length, n_available)
        self.n_granted += n
        return n

    def trim(self) -> int:
        """As the pace says."""
        return self._pace.trim()

    def worth(self) -> tuple[float, ...]:
        """As the pace says."""
        return self._pace.worth()

    def decoded(self, n_tokens: int, depth: int, seconds: float) -> None:
        """What a custom drafter decodes costs other times than the draft model's steps."""


class GuardedDrafter:
    """A Drafter around an object of any of the three shapes.

    name: for stats, tokens (`RoundToken.source`) and errors. rng: draws what `predict` predicts;
    None takes the most probable token. is_end: ids after which nothing is drafted.
    """

    def __init__(
        self,
        inner: Guesser | Predictor | Drafter,
        name: str,
        n_vocab: int,
        *,
        rng: np.random.Generator | None,
        is_end: Callable[[int], bool],
    ) -> None:
        self._inner: Any = inner
        self.name = name
        self._n_vocab = n_vocab
        self._shape = shape_of(inner)
        self._rng = rng if self._shape == "predict" else None
        self._is_end = is_end
        self._failed: DrafterError | None = None

    @property
    def is_random(self) -> bool:
        """True when tokens are drawn here at random; given tokens count as deterministic."""
        return self._rng is not None

    def prepare(self, ids: Sequence[int], worth_reading: Callable[[int], bool]) -> None:
        """Passed on where the object has it."""
        self._optional("prepare", tuple(ids), worth_reading)

    def propose(self, ids: Sequence[int], pace: Pace) -> Draft:
        """Tokens to follow `ids`. Raises DrafterError for what cannot be used."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        given = tuple(ids)  # the engine's own list stays out of reach
        if self._shape == "guess":
            return self._guessed(given, pace)
        if self._shape == "predict":
            return self._predicted(given, pace)
        return self._proposed(given, pace)

    def learn(self, p: Sequence[Distribution]) -> None:
        """Passed on where the object has it."""
        self._optional("learn", p)

    def settle(self, ids: Sequence[int]) -> None:
        """Passed on where the object has it; a failure is raised at the next draft.

        The engine settles in `finally`: nothing may come in between there.
        """
        try:
            self._optional("settle", tuple(ids))
        except DrafterError as error:
            self._failed = error

    def _guessed(self, ids: tuple[int, ...], pace: Pace) -> Draft:
        draft = Draft()
        if pace.source(_LIKE_A_MATCH_OF, _N_MAX, None) == "none":
            return draft
        found = self._call("guess", ids, _N_MAX)
        tokens = self._ids(found, "guess")
        if not tokens:
            pace.source(0, 0, None)  # nobody began after all
            return draft
        for token in tokens[: pace.copy(_LIKE_A_MATCH_OF, len(tokens))]:
            draft.append(token, Distribution.one_hot(token), None, self.name)
        return draft

    def _predicted(self, ids: tuple[int, ...], pace: Pace) -> Draft:
        draft = Draft()
        if pace.source(0, 0, 1) != "model":
            return draft
        while pace.another():
            started = perf_counter()
            q = self._law(self._call("predict", (*ids, *draft.ids)))
            confidence = float(q.probs.max())
            pace.decoded(1, len(ids) + len(draft.ids), perf_counter() - started)
            if not pace.take(confidence):
                break
            if self._rng is None:
                token = int(q.ids[int(q.probs.argmax())])
                q = Distribution.one_hot(token)
            else:
                token = q.sample(self._rng.random())
            draft.append(token, q, None, self.name)
            if self._is_end(token):
                break
        return draft

    def _proposed(self, ids: tuple[int, ...], pace: Pace) -> Draft:
        metered = MeteredPace(pace)
        found = self._call("propose", ids, metered)
        if not isinstance(found, Draft):
            raise self._error("propose", f"returned {type(found).__name__}, not a Draft")
        draft = Draft()
        for token in self._ids(found.ids, "propose"):
            draft.append(token, Distribution.one_hot(token), None, self.name)
        if len(draft.ids) > metered.n_granted:
            raise self._error(
                "propose",
                f"returned {len(draft.ids)} tokens, but the pace granted {metered.n_granted}: "
                "append one token for each True of take(), and as many as copy() returns",
            )
        return draft

    def _optional(self, method: str, *arguments: Any) -> None:
        if callable(getattr(self._inner, method, None)):
            self._call(method, *arguments)

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._inner, method)(*arguments)
        except (Cancelled, LocalspecError):
            raise
        except Exception as error:
            raise self._error(method, f"raised {type(error).__name__}: {error}") from error

    def _ids(self, found: Any, method: str) -> list[int]:
        if found is None:
            return []
        try:
            # an iterator may never end
            tokens = [operator.index(token) for token in itertools.islice(found, _N_MAX)]
        except (LocalspecError, Cancelled):
            raise
        except Exception as error:
            raise self._error(method, f"returned no token ids ({error})") from error
        for token in tokens:
            if not 0 <= token < self._n_vocab:
                raise self._error(
                    method, f"returned id {token}; the vocabulary has 0 to {self._n_vocab - 1}"
                )
        return tokens

    def _law(self, found: Any) -> Distribution:
        """A copy that nobody else holds, its sum exactly normalised."""
        try:
            if isinstance(found, Distribution):
                ids = np.array(found.ids, np.int64)
                probs = np.array(found.probs, np.float64)
            else:
                probs = np.array(found, np.float64)
                ids = np.arange(len(probs))
                if probs.shape != (self._n_vocab,):
                    raise ValueError(f"its shape is {probs.shape}, not ({self._n_vocab},)")
        except (TypeError, ValueError) as error:
            raise self._error("predict", f"returned no distribution: {error}") from None
        wrong = self._what_is_wrong(ids, probs)
        if wrong:
            raise self._error("predict", f"returned no distribution: {wrong}")
        kept = probs > 0.0
        return Distribution(ids[kept].astype(np.int32), probs[kept] / probs[kept].sum())

    def _what_is_wrong(
        self, ids: npt.NDArray[np.int64], probs: npt.NDArray[np.float64]
    ) -> str | None:
        if ids.ndim != 1 or ids.shape != probs.shape or not len(ids):
            return f"ids of shape {ids.shape}, probabilities of shape {probs.shape}"
        if (np.diff(ids) <= 0).any():
            return "its ids do not ascend"
        if ids[0] < 0 or ids[-1] >= self._n_vocab:
            return f"ids outside 0 to {self._n_vocab - 1}"
        if not np.isfinite(probs).all() or (probs < 0.0).any():
            return "a probability is negative or not finite"
        if abs(probs.sum() - 1.0) > _SUM_TOLERANCE:
            return f"the probabilities sum to {probs.sum():.6g}"
        return None

    def _error(self, method: str, what: str) -> DrafterError:
        return DrafterError(f"the drafter {self.name}: {method} {what}")
