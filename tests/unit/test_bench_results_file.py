"""results.jsonl: whole appends or none, and rows that were edited are named and go no further."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.results_file import ResultsFile, read_rows, require_rows
from localspec.bench.sweep_results import read_sweep
from localspec.errors import BusyError, DiskSpaceError, InvalidOptionError
from tests.unit.bench_rows import header, pair_rows, quality_row

Row = dict[str, Any]
ROW = {"type": "run", "n": 1}


def sound() -> list[Row]:
    pair = pair_rows("t", "d", {"plain": 10.0, "K=3": 15.0})
    return [header(), *pair, quality_row("t", None, "t")]


def test_rows_are_there_again(tmp_path: Path) -> None:
    with ResultsFile(tmp_path / "out") as results:
        results.append([ROW, {"type": "pair"}])
    assert read_rows(tmp_path / "out") == [ROW, {"type": "pair"}]
    with ResultsFile(tmp_path / "out") as results:
        assert results.rows == [ROW, {"type": "pair"}]


def test_a_torn_line_is_removed_and_appending_goes_on(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text('{"type": "run", "n": 1}\n{"type": "ru')
    assert read_rows(tmp_path) == [ROW]
    with ResultsFile(tmp_path) as results:
        results.append([{"type": "run", "n": 2}])
    assert read_rows(tmp_path) == [ROW, {"type": "run", "n": 2}]


def test_a_full_disk_leaves_whole_rows_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 10:
            return write(fd, data[:10])  # the last bytes that had room
        raise OSError(errno.ENOSPC, "No space left on device")

    with ResultsFile(tmp_path) as results:
        results.append([ROW])
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(DiskSpaceError, match=r"1 runs are in .*same command again"):
            results.append([{"type": "run", "text": "x" * 5}])
        monkeypatch.undo()
    assert read_rows(tmp_path) == [ROW]


def test_two_sweeps_do_not_write_one_folder(tmp_path: Path) -> None:
    with (
        ResultsFile(tmp_path),
        pytest.raises(BusyError, match="another sweep"),
        ResultsFile(tmp_path),
    ):
        pass


def test_dropped_rows_are_gone_from_the_file(tmp_path: Path) -> None:
    with ResultsFile(tmp_path) as results:
        results.append([ROW, {"type": "run", "n": 2}])
        assert results.drop(lambda row: row["n"] == 1) == 1
        results.append([{"type": "run", "n": 3}])
    assert [row["n"] for row in read_rows(tmp_path)] == [2, 3]


@pytest.mark.parametrize("text", ['{"no": "type"}\n', "hello\n", "[1]\n", "[" * 100_000 + "\n"])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text(text)
    with pytest.raises(InvalidOptionError, match="line 1 is no row of a sweep"):
        read_rows(tmp_path)
    with pytest.raises(InvalidOptionError, match="line 1 is no row"), ResultsFile(tmp_path):
        pass


def test_a_folder_without_rows_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="holds no sweep"):
        read_rows(tmp_path)
    (tmp_path / "results.jsonl").write_text("")
    with pytest.raises(InvalidOptionError, match="has not measured anything"):
        read_rows(tmp_path)


def test_ctrl_c_while_waiting_for_the_disk_loses_no_whole_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_fd: int) -> None:
        raise KeyboardInterrupt

    with ResultsFile(tmp_path) as results:
        monkeypatch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            results.append([ROW])
        assert results.rows == [ROW]
    assert read_rows(tmp_path) == [ROW]


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
    ("kind", "changed"),
    [
        ("pair", {"t_ms": {"a": 1.0}}),
        ("pair", {"d_ms": {"-3": 1.0}}),
        ("prediction", {"sampled": {"0.8": {"match": {"k": 1.0}}}}),
    ],
)
def test_keys_that_are_numbers_of_tokens_are_numbers(kind: str, changed: Row) -> None:
    rows = [{**row, **changed} if row["type"] == kind else row for row in sound()]
    with pytest.raises(InvalidOptionError, match=f"of type '{kind}'.*{next(iter(changed))} is"):
        require_rows(rows)


def test_another_version_is_named() -> None:
    with pytest.raises(InvalidOptionError, match=r"version 2.*version 1"):
        read_sweep([header(version=2), *sound()[1:]])
