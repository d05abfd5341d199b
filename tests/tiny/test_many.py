"""Batches: in order, resumable, each answer as if it had been asked alone and cold."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import localspec
from localspec.errors import CancelledError, InvalidOptionError, ResultsFileError
from localspec.session.batch import seed_of
from localspec.session.session import Session

PROMPTS = ["the and of", "in", "is the", "he", "ing to"]
OPTIONS: dict[str, Any] = {"max_tokens": 12, "temperature": 1.0, "n_draft": 3}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def ids(results: list[localspec.Answered]) -> list[tuple[int, ...]]:
    return [result.token_ids for result in results]


def test_each_answer_is_that_of_its_own_seed_from_a_cold_cache(loose_pair: Session) -> None:
    results = loose_pair.complete_many(PROMPTS, seed=3, **OPTIONS)
    assert [result.index for result in results] == [0, 1, 2, 3, 4]
    for i, result in enumerate(results):
        loose_pair.clear_cache()
        alone = loose_pair.complete(PROMPTS[i], seed=seed_of(3, i), **OPTIONS)
        assert (result.token_ids, result.text, result.seed) == (
            alone.token_ids, alone.text, alone.stats.seed,
        )  # fmt: skip
        assert result.promise == "bits"
    assert len(set(ids(results))) == len(PROMPTS)


def test_a_generator_gives_the_same_in_one_pass(loose_pair: Session) -> None:
    listed = loose_pair.complete_many(PROMPTS, seed=3, **OPTIONS)
    seen: list[int] = []

    def prompts() -> Iterator[str]:
        for i, prompt in enumerate(PROMPTS):
            seen.append(i)
            yield prompt

    assert ids(loose_pair.complete_many(prompts(), seed=3, **OPTIONS)) == ids(listed)
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("n_done", [0, 1, 3, 5])
def test_a_killed_run_goes_on_where_it_was(
    loose_pair: Session, tmp_path: Path, n_done: int
) -> None:
    whole = loose_pair.complete_many(PROMPTS, seed=3, **OPTIONS)
    out = tmp_path / "results.jsonl"
    loose_pair.complete_many(PROMPTS, seed=3, out=out, **OPTIONS)
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[: n_done + 1]) + lines[-1][:17])  # and a torn line
    asked: list[int] = []
    complete = loose_pair.complete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loose_pair, "complete", lambda *a, **k: asked.append(1) or complete(*a, **k))
        results = loose_pair.complete_many(PROMPTS, out=out, **OPTIONS)  # the file's seed
    assert len(asked) == len(PROMPTS) - n_done
    assert ids(results) == ids(whole)
    assert [row["index"] for row in rows(out)[1:]] == [0, 1, 2, 3, 4]
    assert [row["type"] for row in rows(out)] == ["batch"] + ["result"] * 5


def test_an_interrupt_keeps_what_was_answered(loose_pair: Session, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"

    def prompts() -> Iterator[str]:
        yield from PROMPTS[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loose_pair.complete_many(prompts(), seed=3, out=out, **OPTIONS)
    assert len(rows(out)) == 3
    results = loose_pair.complete_many(PROMPTS, seed=3, out=out, **OPTIONS)
    assert ids(results) == ids(loose_pair.complete_many(PROMPTS, seed=3, **OPTIONS))


def test_cancel_ends_the_batch_and_writes_no_half_answer(
    loose_pair: Session, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"

    def after_two(done: int, total: int | None) -> None:
        if done == 2:
            begin_alike = loose_pair.begin_alike

            def cancelling(*arguments: Any) -> None:
                begin_alike(*arguments)
                stream_run = loose_pair._planner.engine

                def engine(*a: Any) -> Any:
                    made = stream_run(*a)
                    loose_pair._pair.cancel.set()
                    return made

                patch.setattr(loose_pair._planner, "engine", engine)

            patch.setattr(loose_pair, "begin_alike", cancelling)

    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(CancelledError, match=r"after 2 answers.*goes on"),
    ):
        loose_pair.complete_many(PROMPTS, seed=3, out=out, progress=after_two, **OPTIONS)
    assert len(rows(out)) == 3


def test_errors_of_one_prompt_are_recorded_and_the_rest_goes_on(
    loose_pair: Session, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    prompts: list[Any] = ["the", "", [10**6], [5] * 9000, [{"role": "user"}], "and"]
    results = loose_pair.complete_many(prompts, seed=3, out=out, **OPTIONS)
    assert [result.error for result in results] == [
        None, "EmptyPromptError", "InvalidOptionError", "ContextOverflowError",
        "InvalidOptionError", None,
    ]  # fmt: skip
    assert [result.ok for result in results] == [True, False, False, False, False, True]
    assert "10" in (results[2].message or "")
    again = loose_pair.complete_many(prompts, out=out, **OPTIONS)
    assert again == results
    retried = loose_pair.complete_many(prompts, out=out, retry_errors=True, **OPTIONS)
    assert retried == results
    assert len(rows(out)) == 1 + len(prompts)


def test_other_options_than_in_the_file_are_refused_with_what_differs(
    loose_pair: Session, tiny_target: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    loose_pair.complete_many(PROMPTS[:2], seed=3, out=out, **OPTIONS)
    with pytest.raises(ResultsFileError, match=r"options\.max_tokens 12 in the file, 13 now"):
        loose_pair.complete_many(PROMPTS, out=out, **{**OPTIONS, "max_tokens": 13})
    with pytest.raises(ResultsFileError, match="seed 3 in the file, 4 now"):
        loose_pair.complete_many(PROMPTS, seed=4, out=out, **OPTIONS)
    with pytest.raises(ResultsFileError, match=r"prompt 1 .* is not the one"):
        loose_pair.complete_many(["the and of", "other"], out=out, **OPTIONS)
    with pytest.raises(ResultsFileError, match="only 1 prompts"):
        loose_pair.complete_many(PROMPTS[:1], out=out, **OPTIONS)
    with (
        localspec.load(tiny_target) as other,
        pytest.raises(ResultsFileError, match=r"made_by\.target\.fingerprint"),
    ):
        other.complete_many(PROMPTS, out=out, **OPTIONS)
    before = out.read_bytes()
    loose_pair.complete_many(PROMPTS[:2], out=out, **OPTIONS)
    assert out.read_bytes() == before


@pytest.mark.parametrize("text", ["hello\n", '{"type": "run"}\n', '{"no": 1}\n'])
def test_a_foreign_file_is_refused_and_left_alone(
    loose_pair: Session, tmp_path: Path, text: str
) -> None:
    out = tmp_path / "results.jsonl"
    out.write_text(text)
    with pytest.raises((ResultsFileError, InvalidOptionError)):
        loose_pair.complete_many(PROMPTS, out=out, **OPTIONS)
    assert out.read_text() == text


def test_ids_of_the_caller_are_kept_and_must_differ(loose_pair: Session, tmp_path: Path) -> None:
    items = [
        {"id": "a/1", "prompt": "the"},
        {"id": "a/2", "messages": [{"role": "user", "content": "the"}]},
    ]
    results = loose_pair.complete_many(items, seed=1, out=tmp_path / "r.jsonl", **OPTIONS)
    assert [result.id for result in results] == ["a/1", "a/2"]
    with pytest.raises(InvalidOptionError, match="two prompts have the id 'a/1'"):
        loose_pair.complete_many([items[0], items[0]], seed=1, **OPTIONS)
    with pytest.raises(InvalidOptionError, match="list of prompts"):
        loose_pair.complete_many("the", seed=1, **OPTIONS)
    with pytest.raises(InvalidOptionError, match="did you mean temperature"):
        loose_pair.complete_many(["the"], temprature=1)


def test_shared_prefixes_are_evaluated_once_and_change_nothing(
    tiny_target: Path, tiny_draft: Path
) -> None:
    """Whole prefill batches are kept: evaluated cold, they would have the same shapes."""
    shared = [(7 * i) % 30 + 262 for i in range(40)]
    other = [(11 * i) % 30 + 262 for i in range(40)]
    prompts = [[*(shared if i % 2 else other), 270 + i] for i in range(8)]
    random.Random(5).shuffle(prompts)
    options = {**OPTIONS, "top_k": 5}
    with localspec.load(tiny_target, tiny_draft, n_batch=16) as session:
        read: list[int] = []
        decode = session._target.decode

        def counting(batch: Any, *, n_rows: int) -> Any:
            if n_rows == 0:
                read.append(len(batch))
            return decode(batch, n_rows=n_rows)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session._target, "decode", counting)
            results = session.complete_many(prompts, seed=3, **options)
        for i, prompt in enumerate(prompts):
            session.clear_cache()
            alone = session.complete(prompt, seed=seed_of(3, i), **options)
            assert results[i].token_ids == alone.token_ids
    # two groups read their 32 shared tokens once; each prompt reads the 8 behind them
    assert sum(read) == 2 * 32 + 8 * 8


def test_something_asked_in_between_costs_the_shared_prefix_only(tiny_target: Path) -> None:
    shared = [(7 * i) % 30 + 262 for i in range(40)]
    prompts = [[*shared, 270 + i] for i in range(3)]
    with localspec.load(tiny_target, n_batch=16) as session:
        plain = session.complete_many(prompts, seed=3, **OPTIONS)

        def asking() -> Iterator[list[int]]:
            for prompt in prompts:
                session.complete(shared[:20], max_tokens=3, temperature=0)
                yield prompt

        assert ids(session.complete_many(asking(), seed=3, **OPTIONS)) == ids(plain)


def test_progress_is_told(loose_pair: Session, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int | None]] = []
    loose_pair.complete_many(PROMPTS[:2], progress=lambda *a: told.append(a), **OPTIONS)
    assert told == [(1, 2), (2, 2)]
    told.clear()
    loose_pair.complete_many(iter(PROMPTS[:2]), progress=lambda *a: told.append(a), **OPTIONS)
    assert told == [(1, None), (2, None)]
    loose_pair.complete_many(PROMPTS[:2], progress=True, **OPTIONS)
    assert capsys.readouterr().out == ""


def test_seeds_of_prompts_differ_and_never_change() -> None:
    assert seed_of(3, 0) == 2791653144601025653  # results files rest on it
    assert len({seed_of(b, i) for b in range(10) for i in range(100)}) == 1000
