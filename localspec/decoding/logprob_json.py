"""Log-probabilities as JSON objects, and back. JSON cannot say -inf: null stands for it."""

from __future__ import annotations

import math
from typing import Any

from localspec.decoding.logprobs import TokenLogprob, TopLogprob

__all__ = ["logprob_from_json", "logprob_json", "piece_from_json"]


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
