"""results.jsonl: whole appends or none, whatever ends the process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from localspec.bench.results_file import ResultsFile, read_rows
from localspec.errors import BusyError, DiskSpaceError, InvalidOptionError

ROW = {"type": "run", "n": 1}


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


@pytest.mark.parametrize("text", ['{"no": "type"}\n', "hello\n", "[1]\n"])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text(text)
    with pytest.raises(InvalidOptionError, match="line 1 is no row of a sweep"):
        read_rows(tmp_path)


def test_a_folder_without_rows_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="holds no sweep"):
        read_rows(tmp_path)
    (tmp_path / "results.jsonl").write_text("")
    with pytest.raises(InvalidOptionError, match="measured nothing"):
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
