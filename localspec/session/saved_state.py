"""What a session has evaluated, in a file.

Layout: the magic line, SHA-256 of all that follows (32 bytes), the length of the header (8 bytes,
little-endian), the header (JSON), then the engine's own bytes of the target and, where there is
one, of the draft model. Read whole and checked before the engine sees anything: a damaged file is
a named error. It is no protection against a file that was forged on purpose.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.drafting.draft_cache import DraftCache
from localspec.errors import DiskSpaceError, EngineError, StateFileError
from localspec.llama.context import Context
from localspec.llama.sequence_state import read_sequence, write_sequence
from localspec.session.pair import Pair

__all__ = ["SavedSequence", "read_state_file", "restore_state", "save_state", "write_state_file"]

_MAGIC = b"localspec state 1\n"
_LONGEST_HEADER = 64 << 20


@dataclass(frozen=True, slots=True)
class SavedSequence:
    """One model's evaluated tokens. start: tokens of the text that it never read."""

    role: str
    ids: tuple[int, ...]
    start: int
    state: bytes


def write_state_file(path: Path, made_by: dict[str, Any], parts: list[SavedSequence]) -> None:
    """A kill leaves the old file or the new. Raises StateFileError, DiskSpaceError."""
    header = json.dumps(
        {
            "made_by": made_by,
            "parts": [
                {"role": p.role, "ids": p.ids, "start": p.start, "n_bytes": len(p.state)}
                for p in parts
            ],
        }
    ).encode()
    pieces = [len(header).to_bytes(8, "little"), header, *(part.state for part in parts)]
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as file:
            file.write(_MAGIC + digest.digest())
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            size = sum(map(len, pieces))
            raise DiskSpaceError(
                f"the state needs {size / 1e6:,.0f} MB, and the disk of {path.parent} is full"
            ) from None
        raise StateFileError(f"{path} cannot be written: {error.strerror or error}") from None


def read_state_file(path: Path) -> tuple[dict[str, Any], list[SavedSequence]]:
    """(made_by, parts). Raises StateFileError for a missing, foreign or damaged file."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StateFileError(f"{path} cannot be read: {error.strerror or error}") from None
    if not raw.startswith(_MAGIC[:15]):
        raise StateFileError(f"{path} is no saved state of localspec")
    if not raw.startswith(_MAGIC):
        raise StateFileError(f"{path} was written by another version of localspec: save it anew")
    at = len(_MAGIC) + 32
    if hashlib.sha256(memoryview(raw)[at:]).digest() != raw[len(_MAGIC) : at]:
        raise StateFileError(
            f"{path} is damaged: its {len(raw):,} bytes do not have the checksum that was written "
            "with them. Delete it; the prompt will be evaluated anew"
        )
    n_header = int.from_bytes(raw[at : at + 8], "little")
    start = at + 8 + n_header
    if n_header > _LONGEST_HEADER or start > len(raw):
        raise StateFileError(f"{path} is damaged: its header is longer than the file")
    try:
        header = json.loads(raw[at + 8 : start])
        parts = []
        for given in header["parts"]:
            end = start + int(given["n_bytes"])
            ids = tuple(int(token) for token in given["ids"])
            parts.append(
                SavedSequence(str(given["role"]), ids, int(given["start"]), raw[start:end])
            )
            start = end
        made_by = dict(header["made_by"])
        made_by["load"] = dict(made_by.get("load") or {})
        return made_by, parts
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StateFileError(f"{path} is damaged: its header is not understood ({error})") from None


_MUST_AGREE = ("n_gpu_layers", "type_k", "type_v", "flash_attn")


def save_state(
    path: Path, made_by: dict[str, Any], pair: Pair, draft_cache: DraftCache | None
) -> None:
    """Raises StateFileError, DiskSpaceError, EngineError."""
    parts = [_read("target", pair.target, 0)]
    if draft_cache is not None:
        parts.append(_read("draft", draft_cache.context, draft_cache.start))
    write_state_file(path, made_by, parts)


def restore_state(
    path: Path, made_by: dict[str, Any], pair: Pair, draft_cache: DraftCache | None
) -> tuple[int, ...]:
    """The target's ids. The draft's part is used where the same draft model is loaded.

    Raises StateFileError.
    """
    saved_by, parts = read_state_file(path)
    _require_same(path, saved_by, made_by)
    by_role = {part.role: part for part in parts}
    target = by_role.get("target")
    if target is None:
        raise StateFileError(f"{path} holds no state of a target")
    _write(path, pair.target, target)
    draft = by_role.get("draft")
    if draft_cache is not None:
        same = draft is not None and saved_by.get("draft") == made_by["draft"]
        if draft is not None and same and len(draft.ids) <= draft_cache.context.n_ctx:
            _write(path, draft_cache.context, draft)
            draft_cache.resume(draft.start)
        else:
            draft_cache.context.clear()
    return target.ids


def _read(role: str, context: Context, start: int) -> SavedSequence:
    return SavedSequence(role, tuple(context.ids), start, read_sequence(context))


def _write(path: Path, context: Context, part: SavedSequence) -> None:
    if len(part.ids) > context.n_ctx:
        raise StateFileError(
            f"{path} holds {len(part.ids):,} tokens, but this context has {context.n_ctx:,}: load "
            "with a larger n_ctx"
        )
    try:
        write_sequence(context, part.state, part.ids)
    except EngineError as error:
        raise StateFileError(f"{path} cannot be restored: {error}") from None


def _require_same(path: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    wrong = [
        f"{name}: {then.get(name)!r} then, {now.get(name)!r} now"
        for name in ("target", "engine")
        if then.get(name) != now.get(name)
    ]
    load_then, load_now = then.get("load") or {}, now["load"]
    wrong += [
        f"{name}: {load_then.get(name)!r} then, {load_now.get(name)!r} now"
        for name in _MUST_AGREE
        if load_then.get(name) != load_now.get(name)
    ]
    if wrong:
        raise StateFileError(f"{path} is of another model, engine or cache ({'; '.join(wrong)})")
