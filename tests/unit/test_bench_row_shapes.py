"""Rows that were edited, or that another version wrote, are named and never met further on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localspec.bench.results_file import ResultsFile, read_rows, require_rows
from localspec.bench.sweep_results import read_sweep
from localspec.errors import InvalidOptionError
from tests.unit.bench_rows import header, pair_rows, quality_row

Row = dict[str, Any]
SPEEDS = {"plain": 10.0, "K=3": 15.0}


def sound() -> list[Row]:
    return [header(), *pair_rows("t", "d", SPEEDS), quality_row("t", None, "t")]


def test_sound_rows_pass_also_with_more_than_is_known() -> None:
    require_rows([{**row, "later": 1} for row in sound()] + [{"type": "of a later version"}])


@pytest.mark.parametrize("value", [None, "x", [], {}, -1, float("nan"), "missing"])
def test_whatever_was_edited_is_refused_or_read(value: object) -> None:
    """A named error, or a sweep: nothing else."""
    rows = sound()
    first = {row["type"]: i for i, row in reversed(list(enumerate(rows)))}
    n_refused = 0
    for i in first.values():
        for field in rows[i].keys() - {"type"}:
            row = {**rows[i], field: value}
            if value == "missing":
                del row[field]
            try:
                read_sweep([*rows[:i], row, *rows[i + 1 :]])
            except InvalidOptionError:
                n_refused += 1
    assert n_refused > 20


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"repetition": None}, r"row 2 \(of type 'run'\).*repetition is 'None'"),
        ({"avg_ts": "fast"}, "avg_ts is 'fast'"),
        ({"judged_by_position": [1]}, "entries"),
    ],
)
def test_the_row_and_the_field_are_named(changed: Row, words: str) -> None:
    rows = sound()
    with pytest.raises(InvalidOptionError, match=words):
        require_rows([rows[0], {**rows[1], **changed}])


@pytest.mark.parametrize(
    "changed",
    [
        {"type": "pair", "t_ms": {"a": 1.0}},
        {"type": "pair", "d_ms": {"-3": 1.0}},
        {"type": "prediction", "sampled": {"0.8": {"match": {"k": 1.0}}}},
    ],
)
def test_keys_that_are_numbers_of_tokens_are_numbers(changed: Row) -> None:
    rows = [{**row, **changed} if row["type"] == changed["type"] else row for row in sound()]
    with pytest.raises(InvalidOptionError, match="where a number of tokens belongs"):
        require_rows(rows)


def test_another_version_is_named() -> None:
    with pytest.raises(InvalidOptionError, match=r"version 2.*version 1"):
        read_sweep([header(version=2), *sound()[1:]])


def test_a_line_of_ten_thousand_brackets_is_no_row(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(InvalidOptionError, match="line 1 is no row"):
        read_rows(tmp_path)
    with pytest.raises(InvalidOptionError, match="line 1 is no row"), ResultsFile(tmp_path):
        pass
