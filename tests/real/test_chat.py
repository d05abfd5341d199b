"""The chat as a person meets it: a real pair in a pseudo-terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.terminal import ENTER, ESCAPE, Terminal

pytestmark = pytest.mark.real

CTRL_C, CTRL_Q, CTRL_R, CTRL_T = "\x03", "\x11", "\x12", "\x14"


def _turns(folder: Path) -> list[dict[str, object]]:
    files = [path.read_text("utf-8") for path in folder.glob("*.jsonl")]
    lines = [json.loads(line) for text in files for line in text.splitlines()]
    return [line for line in lines if line["type"] == "turn"]


def test_start_ask_stop_retry_quit_resume(
    real_pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA", str(tmp_path))
    chat = ["chat", "--temp", "0", "--seed", "1", "--ctx-size", "2048"]
    with Terminal(chat) as terminal:
        terminal.sees("ctx 0/2,048", 120)
        assert "accepted" in terminal.text  # the legend
        terminal.type("Count from one to one hundred in words." + ENTER)
        terminal.sees("Esc stops the answer")
        terminal.sees("seven")
        terminal.type(ESCAPE)
        terminal.sees("stopped; /continue goes on")
        assert "tok/s" in terminal.text

        terminal.type("/set max_tokens 12" + ENTER)
        terminal.sees("max_tokens is 12")
        terminal.type(CTRL_R)
        terminal.sees("‹ 2 of 2 ›")
        terminal.sees("cut at the token limit")

        terminal.type(CTRL_T)
        terminal.sees("rounds")

        terminal.type("/set max_tokens 500" + ENTER)
        terminal.sees("max_tokens is 500")
        terminal.type("Write a Python class for a binary search tree, with docstrings." + ENTER)
        terminal.sees("Esc stops the answer")
        terminal.type(CTRL_Q)
        assert terminal.wait() == 0
        for restored in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l"):  # screen, cursor, mouse
            assert restored in terminal.raw
        told = terminal.raw.rpartition(b"\x1b[?1049l")[2].decode()
        assert "saved; continue with" in told
        chat_id = re.search(r"--resume (\S+?)`", told)
        assert chat_id is not None

    turns = _turns(tmp_path / "chats")
    assert [turn["role"] for turn in turns].count("user") == 2

    with Terminal([*chat, "--resume", chat_id[1]]) as terminal:
        terminal.sees("Write a Python class for a binary search tree, with docstrings.", 120)
        terminal.type(CTRL_C)
        terminal.sees("Ctrl+C again quits")
        terminal.type(CTRL_C)
        assert terminal.wait() == 0


def test_line_by_line_where_the_terminal_is_dumb(
    real_pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA", str(tmp_path))
    chat = ["chat", "--temp", "0", "--ctx-size", "1024", "--max-tokens", "8"]
    with Terminal(chat, env={"TERM": "dumb"}) as terminal:
        terminal.sees("/quit ends", 120)
        terminal.type("Say hello." + ENTER)
        terminal.sees("tokens/s")
        terminal.type("/retry" + ENTER)
        terminal.until(lambda text: text.count("tokens/s") == 2)
        terminal.type("/quit" + ENTER)
        assert terminal.wait() == 0
        assert b"\x1b" not in terminal.raw


def test_line_by_line_where_stderr_is_no_terminal(
    real_pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual would draw its screen into the file."""
    monkeypatch.setenv("LOCALSPEC_DATA", str(tmp_path / "data"))
    errors = tmp_path / "errors"
    chat = ["chat", "--temp", "0", "--ctx-size", "1024", "--max-tokens", "8"]
    with Terminal(chat, stderr=errors) as terminal:
        terminal.sees("the chat goes line by line", 120)
        terminal.type("Say hello." + ENTER)
        terminal.until(lambda _: b"tokens/s" in errors.read_bytes())
        terminal.type("/quit" + ENTER)
        assert terminal.wait() == 0
    assert "Hello" in terminal.text
    assert b"\x1b[?1049h" not in terminal.raw + errors.read_bytes()
