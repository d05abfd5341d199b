"""A recorded answer on disk: the event stream, the costs, and both models' laws at each position.

JSON lines with a `type`: `trace` first (what was run, and the cost tables), then the events as
`--json` prints them, then one `position` for each token of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localspec.control.costs import Costs
from localspec.decoding.event_json import as_json
from localspec.decoding.events import Event, Finished
from localspec.decoding.teacher_forcing import Position
from localspec.errors import InvalidOptionError
from localspec.sampling.raw_law import Top
from localspec.session.options import Options, parse
from localspec.session.session import Prompt, Session

__all__ = ["Recording", "read_trace", "record", "top_overlap"]

VERSION = 1


class Recording:
    """One recorded answer. positions: at least one; both models' laws before each token of it.

    header: what was run, with `prompt_ids`, `greedy` and `costs` (as Costs.to_json() wrote them).
    """

    def __init__(self, header: Mapping[str, Any], positions: Sequence[Position]) -> None:
        self.header, self.positions = header, positions
        self.prompt_ids: list[int] = list(header["prompt_ids"])
        self.tokens = [position.token for position in positions]
        self.is_greedy = bool(header["greedy"])
        self.has_draft = positions[0].q is not None

    def costs(self) -> Costs:
        """A fresh copy of the recorded tables."""
        costs = Costs()
        costs.target.load_json(self.header["costs"]["target"])
        costs.draft.load_json(self.header["costs"]["draft"])
        return costs

    def guess(self, i: int) -> int:
        """What the draft model would have said before answer token i."""
        q = self.positions[i].q
        return q.ids[0] if q is not None else -1

    def confidence(self, i: int) -> float:
        """The draft's top probability there."""
        q = self.positions[i].q
        return q.probs[0] if q is not None else 0.0

    def chance(self, i: int) -> float:
        """How likely the draft's guess for answer token i is right: 0 or 1 when greedy."""
        q, p = self.positions[i].q, self.positions[i].p
        if q is None:
            return 0.0
        if self.is_greedy:
            return float(q.ids[0] == self.positions[i].token)
        return top_overlap(p, q)

    def n_right_from(self, i: int) -> int:
        """How many of the draft's guesses from answer token i on are right in a row (greedy)."""
        n = 0
        while i + n < len(self.tokens) and self.chance(i + n) == 1.0:
            n += 1
        return n


def top_overlap(p: Top, q: Top) -> float:
    """Σ min(p, q) over the most probable tokens: a lower bound by the mass that these leave out."""
    return sum(min(p.prob(token), share) for token, share in zip(q.ids, q.probs, strict=True))


def record(
    session: Session,
    path: Path,
    prompt: Prompt,
    options: Mapping[str, Any],
    events: Sequence[Event],
) -> None:
    """Write the trace of an answer that this session gave: events are all of its stream.

    Both models read the answer once more for it. Raises InvalidOptionError for an empty answer
    and when the file cannot be written.
    """
    finished = events[-1] if events else None
    if not isinstance(finished, Finished) or not finished.token_ids:
        raise InvalidOptionError("there is nothing to trace: the answer has no tokens")
    parsed = parse(Options, options)
    header = {
        "target": session.target_path.name,
        "draft": session.draft_path.name if session.draft_path else None,
        "device": session.device,
        "n_threads": session.n_threads,
        "greedy": parsed.greedy,
        "options": {name: options[name] for name in sorted(options) if name != "logit_bias"},
        "prompt_ids": session.encode(prompt),
        "costs": session.costs.to_json(),
    }
    positions = session.read_positions(prompt, finished.token_ids)
    rows = [{"type": "trace", "version": VERSION, **header}, *map(as_json, events)]
    rows += map(_position_row, positions)
    try:
        with path.open("w", encoding="utf-8") as out:
            for row in rows:
                out.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise InvalidOptionError(f"the trace could not be written: {error}") from None


def read_trace(path: Path) -> Recording:
    """Read a trace. Raises InvalidOptionError for a file that is none, or an unfinished one."""
    try:
        lines = path.read_text("utf-8").split("\n")  # splitlines() also cuts at U+2028
        header, *rows = [json.loads(line) for line in lines if line] or [{"type": "nothing"}]
        if header["type"] != "trace" or header["version"] != VERSION:
            raise ValueError("its first line is not of this version")
        positions = [
            Position(
                int(row["token"]), _top(row["p"]), None if row["q"] is None else _top(row["q"])
            )
            for row in rows
            if row["type"] == "position"
        ]
        if positions:
            recording = Recording(header, positions)
            recording.costs()
            return recording
    except OSError as error:
        raise InvalidOptionError(f"the trace could not be read: {error}") from None
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InvalidOptionError(f"{path} is not a trace written by localspec: {error}") from None
    raise InvalidOptionError(
        f"{path} holds no positions: the recording was not finished, or the answer was empty"
    )


def _position_row(position: Position) -> dict[str, Any]:
    return {
        "type": "position",
        "token": position.token,
        "draft_argmax": position.q.ids[0] if position.q else None,
        "p": _json(position.p),
        "q": _json(position.q) if position.q else None,
    }


def _json(top: Top) -> dict[str, Any]:
    return {
        "ids": top.ids,
        "probs": [float(f"{p:.6g}") for p in top.probs],
        "rest": float(f"{top.rest:.6g}"),
    }


def _top(found: Mapping[str, Any]) -> Top:
    ids = tuple(int(i) for i in found["ids"])
    probs = tuple(float(p) for p in found["probs"])
    if not ids or len(ids) != len(probs):
        raise ValueError("a position has no ids, or not one probability for each")
    return Top(ids, probs, float(found["rest"]))
