"""The event stream as JSON objects, one for each event; names as in llama-server's timings.

A token whose bytes are no whole text carries them in `bytes` too (hexadecimal). In `worth`, null
stands for a length that was not allowed (-inf), which JSON cannot say; so it does in logprobs.
"""

from __future__ import annotations

import math
from typing import Any

from localspec.decoding.events import Alternative, Event, Finished, Prefill, Round, RoundToken
from localspec.decoding.logprobs import logprob_from_json, logprob_json, piece_from_json

__all__ = ["as_json", "round_from_json"]


def as_json(event: Event) -> dict[str, Any]:
    """The JSON object of one event; names as in llama-server's timings."""
    if isinstance(event, Prefill):
        return {"type": "prefill", "done": event.done, "total": event.total}
    if isinstance(event, Round):
        return {
            "type": "round",
            "index": event.index,
            "n_draft": event.n_draft,
            "n_accepted": event.n_accepted,
            "tokens": [_token(token) for token in event.tokens],
            "text": event.text,
            "draft_s": event.draft_s,
            "verify_s": event.verify_s,
            "elapsed_s": event.elapsed_s,
            "depth": event.depth,
            "verifier": event.verifier,
            "worth": [value if math.isfinite(value) else None for value in event.worth],
            **({"n_replayed": event.n_replayed} if event.n_replayed else {}),
            **({} if event.plain_s is None else {"plain_s": event.plain_s}),
        }
    assert isinstance(event, Finished)
    found: dict[str, Any] = {
        "type": "finished",
        "reason": event.reason,
        "text": event.text,
        "token_ids": list(event.token_ids),
        "seed": event.stats.seed,
        "verifier": event.stats.verifier,
        "drafter": event.stats.drafter,
        "notes": list(event.stats.notes),
        "timings": event.stats.timings(),
    }
    for name in ("logprobs", "prompt_logprobs"):
        entries = getattr(event, name)
        if entries is not None:
            found[name] = [logprob_json(entry) for entry in entries]
    if event.grammar_complete is not None:
        found["grammar_complete"] = event.grammar_complete
    return found


def _token(token: RoundToken) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": token.id,
        "text": token.text,
        "source": token.source,
        "verdict": token.verdict,
        "p": token.p,
        "q": token.q,
        "p_raw": token.p_raw,
        "q_raw": token.q_raw,
    }
    if "\ufffd" in token.text:
        found["bytes"] = token.piece.hex()
    if token.logprob is not None:
        found["logprob"] = logprob_json(token.logprob)
    for name, top in (("p_top", token.p_top), ("q_top", token.q_top)):
        if top:
            found[name] = [{"id": a.id, "text": a.text, "prob": a.prob} for a in top]
    return found


def round_from_json(given: dict[str, Any]) -> Round:
    """The Round that as_json() wrote. Raises KeyError, TypeError, ValueError for anything else."""
    return Round(
        index=int(given["index"]),
        n_draft=int(given["n_draft"]),
        n_accepted=int(given["n_accepted"]),
        tokens=tuple(_token_from(token) for token in given["tokens"]),
        text=str(given["text"]),
        draft_s=float(given["draft_s"]),
        verify_s=float(given["verify_s"]),
        elapsed_s=float(given["elapsed_s"]),
        depth=int(given.get("depth", 0)),
        verifier=str(given.get("verifier", "match")),
        worth=tuple(-math.inf if value is None else value for value in given.get("worth", ())),
        n_replayed=int(given.get("n_replayed", 0)),
        plain_s=_optional(given.get("plain_s")),
    )


def _token_from(given: dict[str, Any]) -> RoundToken:
    return RoundToken(
        id=int(given["id"]),
        piece=piece_from_json(given),
        source=str(given["source"]),
        verdict=given["verdict"],
        p=float(given["p"]),
        q=_optional(given["q"]),
        p_raw=float(given["p_raw"]),
        q_raw=_optional(given["q_raw"]),
        p_top=_alternatives(given.get("p_top", ())),
        q_top=_alternatives(given.get("q_top", ())),
        logprob=logprob_from_json(given["logprob"]) if "logprob" in given else None,
    )


def _alternatives(given: Any) -> tuple[Alternative, ...]:
    return tuple(Alternative(int(a["id"]), piece_from_json(a), float(a["prob"])) for a in given)


def _optional(value: Any) -> float | None:
    return None if value is None else float(value)
