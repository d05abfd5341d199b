"""p at every row of a verification: the chain, with all that depends on the position.

Row i sees the committed tokens and the i drafted ones before it: in its history, in what a grammar
allows there, in the surprise that mirostat counts. What is drafted leaves no trace here; `advance`
alone moves the answer's own state, by the tokens that were kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from localspec.errors import NoTokenError
from localspec.sampling.chain import adjusted, distribution
from localspec.sampling.constraint import Constraint
from localspec.sampling.distribution import Distribution
from localspec.sampling.dry import Dry
from localspec.sampling.mirostat import first_mu, mirostat_law, next_mu
from localspec.sampling.params import SamplingParams
from localspec.sampling.seeds import position_coin

__all__ = ["TargetLaw"]

Row = npt.NDArray[np.float32]

_NONE = -1  # stands for the law of a row that has none; it raises when it is needed


class TargetLaw:
    """The target's processed distributions of one answer.

    constraint: the answer's grammar. dry: needed when DRY is on. min_tokens: before so many tokens
    the end_ids are forbidden.
    """

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        *,
        constraint: Constraint | None = None,
        dry: Dry | None = None,
        min_tokens: int = 0,
        end_ids: Sequence[int] = (),
    ) -> None:
        self._params = params
        self._seed = seed
        self._constraint = constraint
        self._dry = dry
        self._min_tokens = min_tokens
        self._end_ids = np.array(end_ids, np.int64)
        self._mu = first_mu(params)
        self._failed: dict[int, NoTokenError] = {}

    def rows(
        self, rows: Sequence[Row], ids: Sequence[int], n_prompt: int, draft_ids: Sequence[int]
    ) -> list[Distribution]:
        """p[i] after ids and the first i drafted tokens; rows[i]: the logits there.

        A row without any allowed token raises when it is reached, not when it is drafted; one
        of NaN or infinities raises EngineError at once.
        """
        self._failed.clear()
        laws: list[Distribution] = []
        mu = self._mu
        for i, row in enumerate(rows):
            try:
                law = self._law(row, ids, len(ids) - n_prompt + i, draft_ids[:i], mu)
            except NoTokenError as error:
                end = self._end_of_grammar(draft_ids[:i])
                if end is None:
                    self._failed[i] = error
                law = end or Distribution.one_hot(_NONE)
            laws.append(law)
            if self._params.mirostat and i < len(draft_ids):
                mu = next_mu(mu, law, draft_ids[i], self._params)
        return laws

    def advance(self, laws: Sequence[Distribution], kept: Sequence[int]) -> None:
        """The kept tokens join the answer. Raises NoTokenError where the last had no law."""
        if len(kept) - 1 in self._failed:
            raise self._failed[len(kept) - 1]
        if self._params.mirostat:
            for law, token in zip(laws, kept, strict=False):
                self._mu = next_mu(self._mu, law, token, self._params)

    def _end_of_grammar(self, draft_ids: Sequence[int]) -> Distribution | None:
        """Where the grammar ends the answer, no option can hold the end back."""
        position = self._constraint.after(draft_ids) if self._constraint is not None else None
        if position is None or not position.must_end:
            return None
        return Distribution.one_hot(int(position.allowed.argmax()))

    def _law(
        self, row: Row, ids: Sequence[int], position: int, draft_ids: Sequence[int], mu: float
    ) -> Distribution:
        """position: tokens of the answer before this one."""
        if position < self._min_tokens:
            row = row.copy()
            row[self._end_ids] = -np.inf
        here = self._constraint.after(draft_ids) if self._constraint is not None else None
        mask = None if here is None else here.allowed
        if self._params.mirostat:
            return mirostat_law(adjusted(row, self._params, ()), self._params, mu, mask)
        coin = position_coin(self._seed, position) if self._params.xtc_probability else 1.0
        history = self._history(ids, draft_ids)
        return distribution(row, self._params, history, mask=mask, dry=self._dry, coin=coin)

    def _history(self, ids: Sequence[int], draft_ids: Sequence[int]) -> Sequence[int]:
        if not self._params.uses_history:
            return ()
        n = self._params.n_history
        return [*(ids if n is None else ids[-n:]), *draft_ids]
