"""What is told of each token of a round: its verdict, its probabilities, its alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from localspec.decoding.draft import Draft
from localspec.decoding.events import Alternative, RoundToken, Verdict
from localspec.decoding.logprobs import LogprobReader, TokenLogprob
from localspec.sampling.distribution import Distribution
from localspec.sampling.raw_law import RawLaw, Top

__all__ = ["RoundTokens"]

Row = npt.NDArray[np.float32]


class RoundTokens:
    """piece: the bytes of a token. n_alternatives, logprobs: as in Engine."""

    def __init__(
        self, piece: Callable[[int], bytes], n_alternatives: int, logprobs: LogprobReader | None
    ) -> None:
        self._piece = piece
        self._n_alternatives = n_alternatives
        self._logprobs = logprobs

    def tokens(
        self, draft: Draft, p: Sequence[Distribution], rows: Sequence[Row], a: int, last: int
    ) -> list[RoundToken]:
        """The drafted tokens, of which a are accepted, and the target's own one behind those.

        p, rows: processed and raw of the target, before each drafted token and behind the last;
        rows float32, shape (n_vocab,).
        """
        n = len(draft.ids)
        found = [self._drafted(draft, p, rows, i, a) for i in range(n)]
        raw = RawLaw(rows[a])
        found.append(
            RoundToken(
                last,
                self._piece(last),
                "target",
                "bonus" if a == n else "correction",
                p[a].prob(last),
                draft.q[a].prob(last) if a < n else None,
                raw.prob(last),
                None,
                self._alternatives(raw),
                self._named(draft.q_top[a]) if a < n else (),
                self._logprob(last, raw, p[a], "target"),
            )
        )
        return found

    def _drafted(
        self, draft: Draft, p: Sequence[Distribution], rows: Sequence[Row], i: int, a: int
    ) -> RoundToken:
        token, raw = draft.ids[i], RawLaw(rows[i])
        verdict: Verdict = "accepted" if i < a else "rejected" if i == a else "discarded"
        return RoundToken(
            token,
            self._piece(token),
            draft.sources[i],
            verdict,
            p[i].prob(token),
            draft.q[i].prob(token),
            raw.prob(token),
            draft.q_raw[i],
            self._alternatives(raw),
            self._named(draft.q_top[i]),
            self._logprob(token, raw, p[i], draft.sources[i]) if i < a else None,
        )

    def _logprob(
        self, token: int, raw: RawLaw, p: Distribution, source: str
    ) -> TokenLogprob | None:
        if self._logprobs is None:
            return None
        return self._logprobs.read(token, raw, p, source, accepted=source != "target")

    def _alternatives(self, raw: RawLaw) -> tuple[Alternative, ...]:
        n = self._n_alternatives
        return self._named(Top.of_law(raw, n) if n else None)

    def _named(self, top: Top | None) -> tuple[Alternative, ...]:
        if top is None:
            return ()
        return tuple(
            Alternative(token, self._piece(token), prob)
            for token, prob in zip(top.ids, top.probs, strict=True)
        )
