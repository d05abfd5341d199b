"""Log-probabilities of the tokens of an answer and of its prompt, from the target's own rows.

`raw` is the log-softmax of the unprocessed logits; `processed` is the logarithm of the probability
under the whole chain, -inf for what it cuts off. Natural logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.llama.context import Context
from localspec.sampling.distribution import Distribution
from localspec.sampling.raw_law import RawLaw

__all__ = [
    "LogprobReader",
    "TokenLogprob",
    "TopLogprob",
    "logprob_from_json",
    "logprob_json",
    "piece_from_json",
    "read_prompt",
]


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


def logprob_json(entry: TokenLogprob) -> dict[str, Any]:
    """One token's; `bytes` (hexadecimal) where they are no whole text."""
    return {
        **_spelled(entry.id, entry.piece),
        "logprob": _finite(entry.logprob),
        "top": [{**_spelled(a.id, a.piece), "logprob": _finite(a.logprob)} for a in entry.top],
        "source": entry.source,
        "accepted": entry.accepted,
    }


def logprob_from_json(given: dict[str, Any]) -> TokenLogprob:
    """What logprob_json() made. Raises KeyError, TypeError or ValueError for anything else.

    The first token of a prompt has None; any other null is -inf.
    """
    nothing = None if given["source"] == "prompt" else -math.inf
    value = given["logprob"]
    return TokenLogprob(
        int(given["id"]),
        piece_from_json(given),
        nothing if value is None else float(value),
        tuple(_top_from(top) for top in given["top"]),
        str(given["source"]),
        bool(given["accepted"]),
    )


def _top_from(given: dict[str, Any]) -> TopLogprob:
    value = given["logprob"]
    return TopLogprob(
        int(given["id"]), piece_from_json(given), -math.inf if value is None else float(value)
    )


def _spelled(token: int, piece: bytes) -> dict[str, Any]:
    text = piece.decode("utf-8", "replace")
    found: dict[str, Any] = {"id": token, "text": text}
    if "\ufffd" in text:
        found["bytes"] = piece.hex()
    return found


def piece_from_json(given: dict[str, Any]) -> bytes:
    """The bytes of a token that was written with its text, and `bytes` where they are no text."""
    return bytes.fromhex(given["bytes"]) if "bytes" in given else str(given["text"]).encode()


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def read_prompt(
    target: Context, ids: Sequence[int], reader: LogprobReader
) -> Iterator[list[TokenLogprob]]:
    """What is known after each piece of `target.max_rows` tokens; the last is the whole prompt.

    The target is cleared, and holds all but the last token in the end. Nothing precedes the first
    token, whose logprob is None. Raises EngineError and Cancelled as decoding does.
    """
    found = [TokenLogprob(ids[0], target.model.vocabulary.piece(ids[0]), None, (), "prompt")]
    target.clear()
    for start in range(0, len(ids) - 1, target.max_rows):
        piece = ids[start : min(start + target.max_rows, len(ids) - 1)]
        for i, row in enumerate(target.decode(piece, n_rows=len(piece)), start + 1):
            found.append(reader.read(ids[i], RawLaw(row), None, "prompt"))
        yield found
    yield found
