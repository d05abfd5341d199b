"""Chats on disk: one JSON-lines file each, only ever appended to.

A kill at any moment loses at most the last second of an answer: a torn last line is left out when
the file is read, and the pieces of an unfinished answer make a turn that was `interrupted`.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import platformdirs

from localspec.chat.conversation import Conversation, Turn
from localspec.decoding.event_json import as_json, round_from_json
from localspec.errors import SavedChatError

__all__ = ["SavedChat", "SavedTitle", "chats_folder", "list_chats"]

_VERSION = 1
# what a damaged line can raise: a number too large and a nesting too deep are among it
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_WORDS = ("drafter", "verifier")  # of the timings; all others are numbers
_ID = re.compile(r"[\w-]{1,64}")


@dataclass(frozen=True, slots=True)
class SavedTitle:
    """A chat in the list: its first question, and when it was last written (seconds, epoch)."""

    id: str
    title: str
    written: float
    n_bytes: int


def chats_folder() -> Path:
    """Where chats are kept; LOCALSPEC_DATA overrides the platform's folder for user data.

    Raises SavedChatError when that is the home folder of somebody who is not here.
    """
    own = os.environ.get("LOCALSPEC_DATA")
    if not own:
        return Path(platformdirs.user_data_dir("localspec", appauthor=False)) / "chats"
    try:
        return Path(own).expanduser() / "chats"
    except RuntimeError as error:  # "~nobody"
        raise SavedChatError(f"LOCALSPEC_DATA is {own!r}: {error}") from None


class SavedChat:
    """The file of one chat, and the conversation in it. Nothing is written before the first turn.

    After a failed write, `broken` says why and nothing more is tried: the chat goes on unsaved.
    """

    def __init__(self, folder: Path | None = None, chat_id: str | None = None) -> None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        self.id = chat_id or f"{stamp}-{secrets.token_hex(2)}"
        self.path = (folder or chats_folder()) / f"{self.id}.jsonl"
        self.conversation = Conversation()
        self.n_skipped = 0
        self.broken: str | None = None
        self._file: IO[bytes] | None = None
        self._system = ""

    @classmethod
    def open(cls, chat_id: str, folder: Path | None = None) -> SavedChat:
        """Read a saved chat. Raises SavedChatError when there is none of that id."""
        if not _ID.fullmatch(chat_id):
            raise SavedChatError(f"{chat_id!r} is not the id of a chat: see the list with /load")
        saved = cls(folder, chat_id)
        try:
            raw = saved.path.read_bytes()
        except FileNotFoundError:
            raise SavedChatError(
                f"there is no saved chat {chat_id!r} in {saved.path.parent}: see the list with "
                "/load, or `localspec chat --continue` for the last one"
            ) from None
        except OSError as error:
            raise SavedChatError(f"the saved chat {saved.path} cannot be read: {error}") from None
        saved._read(raw)
        saved._system = saved.conversation.system
        return saved

    @property
    def damage(self) -> str | None:
        """What of the file could not be read, in words."""
        if not self.n_skipped:
            return None
        lines = "1 damaged line" if self.n_skipped == 1 else f"{self.n_skipped:,} damaged lines"
        return f"{lines} of {self.path} left out"

    def add(self, turn: Turn) -> None:
        """Write a whole turn, to the disk itself."""
        self.conversation.add(turn)
        self._write({"type": "turn", **_turn_json(turn)}, sync=True)

    def grow(self, turn: Turn, text: str, token_ids: Sequence[int], at: int | None = None) -> None:
        """Write what an unfinished answer has gained; `turn` tells where it stands.

        at: the characters that it had before. By it the pieces of two programs that continue one
        answer at once are told apart: what does not fit is left out when the file is read.
        """
        self._write(
            {
                "type": "partial",
                "id": turn.id,
                "parent": turn.parent,
                "model": turn.model,
                "opened": turn.opened,
                "text": text,
                "token_ids": list(token_ids),
                **({"at": at} if at is not None else {}),
            }
        )

    def set_system(self, text: str) -> None:
        """Another system prompt from here on."""
        self.conversation.system = text
        if self._file is not None or self.path.exists():
            self._write_system()

    def set_head(self) -> None:
        """Remember which branch is read."""
        if self._file is not None or self.path.exists():
            self._write({"type": "head", "id": self.conversation.head})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_system(self) -> None:
        self._system = self.conversation.system
        self._write({"type": "system", "text": self._system})

    def _write(self, row: dict[str, Any], *, sync: bool = False) -> None:
        if self.broken:
            return
        rows = [row]
        if self.conversation.system != self._system:
            self._system = self.conversation.system
            rows.insert(0, {"type": "system", "text": self._system})
        try:
            file = self._file or self._begin()
            self._append(file, "".join(map(_line, rows)))
            if sync:
                os.fsync(file.fileno())
        except OSError as error:
            self.broken = f"this chat is no longer saved: {self.path} cannot be written ({error})"

    def _begin(self) -> IO[bytes]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        is_new = not self.path.exists()
        self._file = file = self.path.open("ab", buffering=0)
        if torn and self.path.stat().st_size:
            self._append(file, "\n")
        if is_new:
            self.path.chmod(0o600)  # a chat is nobody else's business
            self._append(file, _line({"type": "chat", "version": _VERSION, "id": self.id}))
        return file

    def _append(self, file: IO[bytes], text: str) -> None:
        """In one write, so that two programs that go on with one chat do not mix their lines."""
        # surrogates (half a character pasted by a broken terminal) must not stop the writing
        raw = text.encode("utf-8", "replace")
        while raw:
            raw = raw[file.write(raw) :]

    def _read(self, raw: bytes) -> None:
        for line in raw.decode("utf-8", "replace").split("\n"):
            if not line.strip():
                continue
            try:
                self._take(json.loads(line))
            except _DAMAGE:
                self.n_skipped += 1  # the torn end of a killed program, or a damaged line

    def _take(self, row: dict[str, Any]) -> None:
        kind = row["type"]
        if kind == "turn":
            self.conversation.add(_turn_from(row))
        elif kind == "partial":  # stands until the whole turn, of the same id, replaces it
            self.conversation.add(_grown(self.conversation.turns.get(row["id"]), row))
        elif kind == "system":
            self.conversation.system = str(row["text"])
        elif kind == "head" and row["id"] in self.conversation.turns:
            self.conversation.head = row["id"]
        elif kind == "chat" and int(row["version"]) > _VERSION:
            raise SavedChatError(f"{self.path} was written by a newer localspec: update first")


def list_chats(folder: Path | None = None) -> list[SavedTitle]:
    """The saved chats, the one written last first."""
    folder = folder or chats_folder()
    found = []
    for path in folder.glob("*.jsonl") if folder.is_dir() else ():
        if not _ID.fullmatch(path.stem) or not path.is_file():
            continue  # no chat of ours: open() would refuse it
        try:
            state = path.stat()
            title = _title(path)
        except OSError:
            continue
        found.append(SavedTitle(path.stem, title, state.st_mtime, state.st_size))
    return sorted(found, key=lambda saved: -saved.written)


def _title(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if '"role": "user"' not in line:
                continue
            try:
                text = str(json.loads(line)["text"]).strip()
            except _DAMAGE:
                continue
            return next(iter(text.splitlines()), "")[:80]
    return "(empty)"


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _turn_json(turn: Turn) -> dict[str, Any]:
    return {
        "id": turn.id,
        "parent": turn.parent,
        "role": turn.role,
        "text": turn.text,
        "token_ids": list(turn.token_ids),
        "reason": turn.reason,
        "timings": turn.timings,
        "thinking_s": turn.thinking_s,
        "opened": turn.opened,
        "model": turn.model,
        "notes": list(turn.notes),
        "rounds": [as_json(round_) for round_ in turn.rounds],
    }


def _turn_from(row: dict[str, Any]) -> Turn:
    seconds = row.get("thinking_s")
    return Turn(
        id=str(row["id"]),
        parent=_optional(row["parent"]),
        role=_role(row["role"]),
        text=str(row["text"]),
        token_ids=tuple(int(token) for token in row.get("token_ids", ())),
        reason=_optional(row.get("reason")),
        timings=_timings(row.get("timings", {})),
        rounds=tuple(round_from_json(round_) for round_ in row.get("rounds", ())),
        thinking_s=float(seconds) if seconds is not None else None,
        opened=bool(row.get("opened", False)),
        model=str(row.get("model", "")),
        notes=tuple(str(note) for note in row.get("notes", ())),
    )


def _grown(before: Turn | None, row: dict[str, Any]) -> Turn:
    """An unfinished answer with one more piece; before: what it has so far, or continues."""
    if before is None:
        before = Turn(str(row["id"]), _optional(row["parent"]), "assistant", "")
    if before.role != "assistant" or row.get("at", len(before.text)) != len(before.text):
        raise ValueError("a piece of another answer, or of another program's")
    return replace(
        before,
        text=before.text + str(row["text"]),
        token_ids=(*before.token_ids, *(int(token) for token in row["token_ids"])),
        reason="interrupted",
        opened=bool(row["opened"]),
        model=str(row["model"]),
    )


def _role(found: Any) -> str:
    if found not in ("user", "assistant"):
        raise ValueError(f"{found!r} is no role")
    return str(found)


def _optional(found: Any) -> str | None:
    if found is not None and not isinstance(found, str):
        raise TypeError(f"{found!r} is no text")
    return found


def _timings(found: Any) -> dict[str, Any]:
    """What can be added and printed of it."""
    return {
        str(name): value
        for name, value in dict(found).items()
        if (isinstance(value, str) and name in _WORDS)
        or (isinstance(value, (int, float)) and math.isfinite(value))
    }
