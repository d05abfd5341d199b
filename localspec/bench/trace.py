"""A recorded answer on disk: the event stream, the costs, and both models' laws at each position.

JSON lines with a `type`: `trace` first (what was run, and the cost tables), then the events as
`--json` prints them, then one `position` for each token of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.decoding.event_json import as_json
from localspec.decoding.events import Event, Finished
from localspec.decoding.teacher_forcing import Position
from localspec.errors import InvalidOptionError
from localspec.sampling.raw_law import Top
from localspec.session.options import Options, parse
from localspec.session.session import Prompt, Session

__all__ = ["Trace", "read_trace", "record", "write_trace"]

VERSION = 1


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded answer. header: what was run. costs: T and D as Costs.to_json wrote them."""

    header: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    positions: tuple[Position, ...]

    @property
    def is_greedy(self) -> bool:
        """True when the answer was decoded greedily, so that replays are exact."""
        return bool(self.header["greedy"])

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt."""
        return list(self.header["prompt_ids"])


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
        "greedy": parsed.sampling().greedy,
        "options": {name: options[name] for name in sorted(options) if name != "logit_bias"},
        "prompt_ids": session.encode(prompt),
        "costs": session.costs.to_json(),
    }
    write_trace(path, header, events, session.read_positions(prompt, finished.token_ids))


def write_trace(
    path: Path,
    header: Mapping[str, Any],
    events: Iterable[Event],
    positions: Iterable[Position],
) -> None:
    """Write a whole trace. Raises InvalidOptionError when the file cannot be written."""
    try:
        with path.open("w", encoding="utf-8") as out:
            for line in _lines(header, events, positions):
                out.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise InvalidOptionError(f"the trace could not be written: {error}") from None


def read_trace(path: Path) -> Trace:
    """Read a trace. Raises InvalidOptionError for a file that is none, or an unfinished one."""
    header: Mapping[str, Any] | None = None
    events: list[Mapping[str, Any]] = []
    positions: list[Position] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                found = json.loads(line)
                kind = found["type"]
                if number == 1:
                    if kind != "trace" or found["version"] != VERSION:
                        raise ValueError("its first line is not of this version")
                    header = found
                elif kind == "position":
                    q = _top(found["q"]) if found["q"] is not None else None
                    positions.append(Position(int(found["token"]), _top(found["p"]), q))
                else:
                    events.append(found)
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
    if header is None or not positions:
        raise InvalidOptionError(
            f"{path} holds no positions: the recording was not finished, or the answer was empty"
        )
    return Trace(header, tuple(events), tuple(positions))


def _lines(
    header: Mapping[str, Any], events: Iterable[Event], positions: Iterable[Position]
) -> Iterable[Mapping[str, Any]]:
    yield {"type": "trace", "version": VERSION, **header}
    for event in events:
        yield as_json(event)
    for position in positions:
        yield {
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
