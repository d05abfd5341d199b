"""The event stream as JSON objects, one for each event; names as in llama-server's timings."""

from __future__ import annotations

from typing import Any

from localspec.speculation.events import Event, Finished, Prefill, Round, RoundToken

__all__ = ["as_json"]


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
            "worth": list(event.worth),
        }
    assert isinstance(event, Finished)
    return {
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
    for name, top in (("p_top", token.p_top), ("q_top", token.q_top)):
        if top:
            found[name] = [{"id": a.id, "text": a.text, "prob": a.prob} for a in top]
    return found
