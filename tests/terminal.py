"""A program in a pseudo-terminal, and the screen that it draws, for end-to-end tests."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

__all__ = ["Terminal"]

ENTER, ESCAPE = "\r", "\x1b"


class _Screen(pyte.Screen):
    """pyte draws for terminals that know less: private sequences come with a keyword."""

    def select_graphic_rendition(self, *attrs: int, private: bool = False) -> None:
        if not private:
            super().select_graphic_rendition(*attrs)


class Terminal:
    """Runs `python -m localspec.cli.main ARGS` on a screen of columns × lines.

    raw: every byte that the program wrote. stderr: a file that stands behind its stderr.
    """

    def __init__(
        self,
        args: Sequence[str],
        *,
        columns: int = 100,
        lines: int = 30,
        env: Mapping[str, str] | None = None,
        stderr: Path | None = None,
    ) -> None:
        self.raw = b""
        self._screen = _Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._status: int | None = None
        command = [sys.executable, "-m", "localspec.cli.main", *args]
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                for name in ("COLUMNS", "LINES"):  # they would hide the size set below
                    os.environ.pop(name, None)
                size = struct.pack("HHHH", lines, columns, 0, 0)
                fcntl.ioctl(1, termios.TIOCSWINSZ, size)  # here, before anything can ask for it
                if stderr is not None:
                    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT), 2)
                os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})}
                os.execv(command[0], command)
            os._exit(127)

    @property
    def text(self) -> str:
        """What the screen shows."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._fd, keys.encode())

    def until(self, condition: Callable[[str], object], seconds: float = 60.0) -> str:
        """Wait until the screen's text fulfils it; the text."""
        deadline = time.monotonic() + seconds
        while not condition(self.text):
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not happen in {seconds:.0f} s:\n{self.text}")
            if not self._read(0.1) and self._ended():
                raise AssertionError(f"the program ended ({self._status}):\n{self.text}")
        return self.text

    def sees(self, words: str, seconds: float = 60.0) -> str:
        """Wait until the screen shows the words."""
        return self.until(lambda text: words in text, seconds)

    def wait(self, seconds: float = 30.0) -> int:
        """The exit code; reads the rest."""
        deadline = time.monotonic() + seconds
        while not self._ended():
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not end in {seconds:.0f} s:\n{self.text}")
            self._read(0.02)
        while self._read(0.05):
            pass
        assert self._status is not None
        return os.waitstatus_to_exitcode(self._status)

    def close(self) -> None:
        """Kill what still runs."""
        if not self._ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, seconds: float) -> bool:
        if not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            new = os.read(self._fd, 65536)
        except OSError:  # the other side is closed
            return False
        self.raw += new
        self._stream.feed(new)
        return bool(new)

    def _ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
        return self._status is not None
