"""Ends in the middle of things: ids, text, logprobs and counts agree with each other.

A target that says a known text by a wide margin, drafted in blocks that are right; each case is
run plainly and with drafts, and both must give the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.decoding.events import Finished, Round
from localspec.session.session import Completion, Session
from tests import tiny_models
from tests.batch_noise import batch_noise


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("agreement")
    target = tiny_models.write_llama(folder / "t.gguf", vocab="bytes", cycle=True)
    draft = tiny_models.write_llama(
        folder / "d.gguf", vocab="bytes", cycle=True, cycle_breaks=9, name="draft"
    )
    with Session(Path(target), Path(draft)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def said(session: Session) -> Completion:
    """What the target says when nothing ends it."""
    return session.complete("the", temperature=0.0, max_tokens=40, drafter="none")


def run(session: Session, how: dict[str, Any], **options: Any) -> tuple[list[Round], Finished]:
    events = list(session.stream("the", temperature=0.0, logprobs=2, **how, **options))
    assert isinstance(events[-1], Finished)
    return [event for event in events if isinstance(event, Round)], events[-1]


PLAIN, DRAFTED = {"drafter": "none"}, {"drafter": "model", "n_draft": 6}


def cases(said: Completion, session: Session) -> dict[str, tuple[dict[str, Any], str]]:
    """Options of a case and the reason it must end with."""
    text = said.text
    pieces = [session.piece(token) for token in said.token_ids]
    starts = [len("".join(pieces[:i])) for i in range(len(pieces) + 1)]
    third = text[starts[2] : starts[3]]
    across = text[starts[3] - 1 : starts[4] + 1]
    return {
        "a budget of one": ({"max_tokens": 1}, "length"),
        "a budget of nothing": ({"max_tokens": 0}, "length"),
        "a budget at a block's end": ({"max_tokens": 7}, "length"),
        "a budget inside a block": ({"max_tokens": 10}, "length"),
        "a stop that is one token": ({"max_tokens": 40, "stop": third}, "stop"),
        "a stop across tokens": ({"max_tokens": 40, "stop": across}, "stop"),
        "a stop that begins within a token": ({"max_tokens": 40, "stop": text[1:4]}, "stop"),
        "a stop at the very beginning": ({"max_tokens": 40, "stop": text[:2]}, "stop"),
        "the earlier of two stops": (
            {"max_tokens": 40, "stop": (text[12:15], text[6:9])},
            "stop",
        ),
        "a stop that never completes": ({"max_tokens": 9, "stop": text[5:9] + "Ω"}, "length"),
        "a stop on the last token of the budget": (
            {"max_tokens": len(session.encode("x")) and 6, "stop": text[starts[5] : starts[6]]},
            "stop",
        ),
        "a stop id": ({"max_tokens": 40, "stop_ids": [said.token_ids[8]]}, "stop"),
        "a stop id inside the least length": (
            {"max_tokens": 14, "min_tokens": 14, "stop_ids": [said.token_ids[8]]},
            "length",
        ),
        "a stop longer than the text": ({"max_tokens": 3, "stop": text[:30]}, "length"),
    }


NAMES = (
    "a budget of one",
    "a budget of nothing",
    "a budget at a block's end",
    "a budget inside a block",
    "a stop that is one token",
    "a stop across tokens",
    "a stop that begins within a token",
    "a stop at the very beginning",
    "the earlier of two stops",
    "a stop that never completes",
    "a stop on the last token of the budget",
    "a stop id",
    "a stop id inside the least length",
    "a stop longer than the text",
)


@pytest.mark.parametrize("how", [PLAIN, DRAFTED], ids=["plain", "drafted"])
@pytest.mark.parametrize("name", NAMES)
def test_everything_agrees(
    session: Session, said: Completion, name: str, how: dict[str, Any]
) -> None:
    options, reason = cases(said, session)[name]
    rounds, end = run(session, how, **options)
    assert end.reason == reason
    assert end.stats.predicted_n == len(end.token_ids)
    assert end.logprobs is not None
    assert tuple(entry.id for entry in end.logprobs) == end.token_ids
    assert "".join(round_.text for round_ in rounds) == end.text
    spelled = b"".join(entry.piece for entry in end.logprobs).decode("utf-8", "replace")
    assert spelled.startswith(end.text)
    assert said.text.startswith(end.text) or "min_tokens" in options
    last = len(end.logprobs[-1].text) if end.logprobs else 0
    assert len(spelled) - len(end.text) < max(1, last)  # the last token left something in the text
    stops = options.get("stop", ())
    for stop in (stops,) if isinstance(stops, str) else stops:
        assert stop not in end.text
    assert len(end.token_ids) <= options["max_tokens"]
    assert len(session._target.ids) <= len(session.encode("the")) + len(end.token_ids)


@pytest.mark.parametrize("name", NAMES)
def test_drafts_do_not_move_the_end(session: Session, said: Completion, name: str) -> None:
    options, _ = cases(said, session)[name]
    noise = batch_noise(session).logprob
    _, plain = run(session, PLAIN, **options)
    _, drafted = run(session, DRAFTED, **options)
    assert (plain.token_ids, plain.text, plain.reason) == (
        drafted.token_ids,
        drafted.text,
        drafted.reason,
    )
    assert plain.logprobs is not None
    assert drafted.logprobs is not None
    for ours, theirs in zip(plain.logprobs, drafted.logprobs, strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=noise)
