"""A JSON-lines file that only grows: rows are on the disk before the next one is made.

What is written together arrives together: a process that is killed leaves at most one torn
append, which the next opening removes. Two processes cannot write one file. Knows nothing of what
the rows mean.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from filelock import FileLock, Timeout

from localspec.errors import BusyError, DiskSpaceError, InvalidOptionError

__all__ = ["JsonlFile", "Row", "read_whole_rows"]

Row: TypeAlias = "dict[str, Any]"

Self = TypeVar("Self", bound="JsonlFile")


class JsonlFile:
    """A file open for appending. Use it as a context manager.

    path: made with its folder when it is missing. lock_path: guards against a second writer.
    rows: all that stand in the file, in order; each is an object with a text `type`.
    Raises BusyError when another process writes here, InvalidOptionError when the file cannot be
    used, DiskSpaceError when the disk is full. `writer` and `rows_are` are words of the errors.
    """

    writer = "another run"
    rows_are = "no row of localspec"

    def __init__(self, path: Path, lock_path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._fd = -1
        self._lock = FileLock(str(lock_path))

    def __enter__(self: Self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            self._fd = self._opened()
            self.rows = self._read_and_trim()
        except Timeout:
            raise BusyError(f"{self.writer} writes to {self.path}: wait for it") from None
        except OSError as error:
            self._lock.release()
            raise self._named(error) from None
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._lock.release()

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows, all or none, and wait until they are on the disk."""
        text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
        raw = text.encode("utf-8", "surrogatepass")
        end = os.lseek(self._fd, 0, os.SEEK_END)
        written = 0
        try:
            while written < len(raw):
                written += os.write(self._fd, raw[written:])
            os.fsync(self._fd)
        except BaseException as error:  # Ctrl-C too: no half of an append stays
            if written == len(raw) and not isinstance(error, OSError):
                self.rows += rows  # whole, and only the wait for the disk was cut short
                raise
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, end)
            if isinstance(error, OSError):
                raise self._named(error) from None
            raise
        self.rows += rows

    def replace(self, rows: Sequence[Row]) -> None:
        """Put other rows in the place of all, at once: a kill leaves the old ones or the new."""
        partial = self.path.with_suffix(".part")
        try:
            with partial.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as out:
                for row in rows:
                    out.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
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
        self.rows = list(rows)

    def kept_words(self) -> str:
        """What a full disk did not cost, for the error's text."""
        return f"{len(self.rows)} rows"

    def _opened(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)

    def _read_and_trim(self) -> list[Row]:
        """The whole rows; an append that was cut short at the end of the file is removed."""
        raw = self.path.read_bytes()
        rows = list(read_whole_rows(raw, self.path, self.rows_are))
        end = raw.rfind(b"\n") + 1
        if end < len(raw):
            os.ftruncate(self._fd, end)
        return rows

    def _named(self, error: OSError) -> Exception:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            return DiskSpaceError(
                f"the disk of {self.path.parent} is full. Nothing that was written is lost: "
                f"{self.kept_words()} are in {self.path}. Make room and give the same command "
                "again: it goes on there"
            )
        return InvalidOptionError(f"{self.path} cannot be written: {error.strerror or error}")


def read_whole_rows(raw: bytes, path: Path, rows_are: str) -> Iterator[Row]:
    """The rows of a file's bytes; what stands behind the last line end was torn, and is left out.

    Raises InvalidOptionError for a line that is no JSON object with a text `type`; path and
    rows_are are words of it.
    """
    whole = raw[: raw.rfind(b"\n") + 1]
    for number, line in enumerate(_lines(whole), 1):
        try:
            row = json.loads(line.decode("utf-8", "surrogatepass"))
            if not isinstance(row["type"], str):
                raise ValueError("its type is no text")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidOptionError(
                f"{path}, line {number} is {rows_are} ({error}): the file was changed, or "
                "belongs to another tool"
            ) from None
        yield row


def _lines(raw: bytes) -> Iterable[bytes]:
    return (line for line in raw.split(b"\n") if line.strip())
