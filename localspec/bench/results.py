"""results.jsonl: rows that were measured, appended and on the disk before the next is measured.

Knows rows as dicts with a `type`, and nothing of how they are made. What is written together
arrives together: a process that is killed leaves at most one torn append, which the next opening
removes. Two sweeps cannot write one folder.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from localspec.errors import BusyError, DiskSpaceError, InvalidOptionError

__all__ = ["Results", "read_rows"]

Row = dict[str, Any]
FILE_NAME = "results.jsonl"


class Results:
    """The rows of one folder, open for appending. Use it as a context manager.

    rows: all that stand in the file, in order. Raises BusyError when another sweep writes here,
    InvalidOptionError when the folder cannot be used, DiskSpaceError when the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME
        self.rows: list[Row] = []
        self._fd = -1
        self._lock = FileLock(str(folder / ".lock"))

    def __enter__(self) -> Results:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            self._fd = self._opened()
            self.rows = self._read_and_trim()
        except Timeout:
            raise BusyError(f"another sweep writes to {self.folder}: wait for it") from None
        except OSError as error:
            self._lock.release()
            raise self._named(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        self._lock.release()

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows, all or none, and wait until they are on the disk."""
        text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
        raw = text.encode()
        end = os.lseek(self._fd, 0, os.SEEK_END)
        try:
            written = 0
            while written < len(raw):
                written += os.write(self._fd, raw[written:])
            os.fsync(self._fd)
        except BaseException as error:  # Ctrl-C too: no half of an append stays
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, end)
            if isinstance(error, OSError):
                raise self._named(error) from None
            raise
        self.rows += rows

    def drop(self, unwanted: Callable[[Row], bool]) -> int:
        """Remove rows, so that they can be measured again; returns how many."""
        kept = [row for row in self.rows if not unwanted(row)]
        n = len(self.rows) - len(kept)
        if n:
            partial = self.path.with_suffix(".part")
            try:
                with partial.open("w", encoding="utf-8") as out:
                    for row in kept:
                        out.write(json.dumps(row, ensure_ascii=False) + "\n")
                    out.flush()
                    os.fsync(out.fileno())
                os.close(self._fd)  # Windows replaces no open file
                try:
                    os.replace(partial, self.path)
                finally:
                    self._fd = self._opened()
            except OSError as error:
                partial.unlink(missing_ok=True)
                raise self._named(error) from None
            self.rows = kept
        return n

    def _opened(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)

    def _read_and_trim(self) -> list[Row]:
        """The whole rows; an append that was cut short at the end of the file is removed."""
        raw = self.path.read_bytes()
        end = raw.rfind(b"\n") + 1
        if end < len(raw):
            os.ftruncate(self._fd, end)
        return list(_rows(raw[:end], self.path))

    def _named(self, error: OSError) -> Exception:
        n = sum(row.get("type") == "run" for row in self.rows)
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            return DiskSpaceError(
                f"the disk of {self.folder} is full. Nothing that was written is lost: {n} runs "
                f"are in {self.path}. Make room and give the same command again: it goes on there"
            )
        return InvalidOptionError(f"{self.path} cannot be written: {error.strerror or error}")


def read_rows(folder: Path) -> list[Row]:
    """The rows of a finished or unfinished sweep. Raises InvalidOptionError when there are none."""
    path = folder / FILE_NAME
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidOptionError(
            f"{folder} holds no sweep: {path.name} cannot be read ({error.strerror}). "
            "`localspec bench --out DIR` makes one"
        ) from None
    rows = list(_rows(raw[: raw.rfind(b"\n") + 1], path))
    if not rows:
        raise InvalidOptionError(f"{path} is empty: the sweep measured nothing yet")
    return rows


def _rows(raw: bytes, path: Path) -> Iterator[Row]:
    for number, line in enumerate(_lines(raw), 1):
        try:
            row = json.loads(line)
            if not isinstance(row["type"], str):
                raise ValueError("its type is no text")
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidOptionError(
                f"{path}, line {number} is no row of a sweep ({error}): the file was changed, or "
                "belongs to another tool"
            ) from None
        yield row


def _lines(raw: bytes) -> Iterable[bytes]:
    return (line for line in raw.split(b"\n") if line.strip())
