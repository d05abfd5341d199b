"""However the app is ended, the terminal is as it was: in a pseudo-terminal, without a model."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.terminal import Terminal

# alternate screen, mouse (two kinds, and how it reports), focus, bracketed paste
_MODES = (b"?1049", b"?1000", b"?1003", b"?1006", b"?1004", b"?2004")


def left_on(raw: bytes) -> list[bytes]:
    """The modes that were switched on and not off again, and the cursor if it stays hidden."""

    def at(code: bytes) -> int:
        return raw.rfind(b"\x1b[" + code)

    on = [mode for mode in _MODES if at(mode + b"h") > at(mode + b"l")]
    return [*on, *([b"?25"] if at(b"?25l") > at(b"?25h") else [])]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_restores_the_terminal(tmp_path: Path, name: str) -> None:
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip(f"this platform has no {name}")
    env = {"LOCALSPEC_DATA": str(tmp_path), "LOCALSPEC_CONFIG": str(tmp_path / "none.toml")}
    with Terminal(["chat", "--target", str(tmp_path / "none.gguf")], env=env) as terminal:
        terminal.sees("there is no file")
        assert b"?1049" in left_on(terminal.raw)
        os.kill(terminal.pid, number)
        assert terminal.wait(10) == 128 + number
        assert left_on(terminal.raw) == []
