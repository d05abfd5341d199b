"""A model that computes NaN: a named error says which, and a sound session goes on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.errors import EngineError
from localspec.llama.context import Context
from localspec.session.session import Session
from tests.tiny.truth import Truth, write

PROMPT = [1, 270, 280, 265]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 20, "n_draft": 3}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kind", ["attention", "mamba"])
def test_a_poisoned_row_ends_the_answer_and_not_the_session(
    tiny_dir: Path, kind: str, bad: float
) -> None:
    """Each row of the target in turn, of a draft's verification too."""
    truth = Truth(write(tiny_dir, kind))
    with Session(write(tiny_dir, kind), write(tiny_dir, kind, noise=0.1)) as session:
        row = Context._row
        for at in range(6):
            calls = iter(range(10_000))

            def poisoned(self: Context, i: int, at: int = at, calls: Any = calls) -> Any:
                found = row(self, i)
                if self is session._target and next(calls) == at:
                    found = found.copy()
                    found[len(found) // 2] = bad
                return found

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Context, "_row", poisoned)
                with pytest.raises(EngineError, match="the model returned"):
                    session.complete(PROMPT, drafter="model", **GREEDY)
            got = session.complete(PROMPT, drafter="model", **GREEDY)
            truth.check(PROMPT, got.token_ids, **GREEDY)
    truth.session.close()


def test_a_poisoned_draft_is_named_as_the_draft(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = write(tiny_dir, "attention", noise=0.1)
    with Session(write(tiny_dir, "attention"), draft) as session:
        row = Context._row

        def poisoned(self: Context, i: int) -> Any:
            found = row(self, i)
            return found if self is session._target else np.full_like(found, math.nan)

        monkeypatch.setattr(Context, "_row", poisoned)
        with pytest.raises(EngineError, match=f"draft model {draft.name} returned nan"):
            session.complete(PROMPT, drafter="model", **GREEDY)
        assert session.complete(PROMPT, drafter="ngram", **GREEDY).reason == "length"


def test_a_file_of_nan(tmp_path: Path) -> None:
    """Through llama.cpp itself: the weights of one norm are NaN."""
    path = write(tmp_path, "attention")
    raw = bytearray(path.read_bytes())
    ones = np.ones(64, np.float32).tobytes()
    at = raw.find(ones)
    assert at > 0
    raw[at : at + len(ones)] = np.full(64, np.nan, np.float32).tobytes()
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(raw)
    with Session(bad) as session, pytest.raises(EngineError, match="returned nan"):
        session.complete(PROMPT, **GREEDY)


@pytest.mark.parametrize("token", [-1, -(2**31), 10_000])
def test_ids_that_are_none_are_refused_by_the_context(tiny_dir: Path, token: int) -> None:
    with Session(write(tiny_dir, "attention")) as session:
        context = session._target
        context.decode([1, 270], n_rows=0)
        with pytest.raises(EngineError, match="code -1"):
            context.decode([token], n_rows=1)
        assert context.ids == [1, 270]
        assert context.decode([271], n_rows=1)[0].size
