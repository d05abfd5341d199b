"""Both models' evaluated tokens to a file and back, for one pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from localspec.drafting.draft_cache import DraftCache
from localspec.errors import EngineError, StateFileError
from localspec.llama.context import Context
from localspec.llama.sequence_state import read_sequence, write_sequence
from localspec.session.pair import Pair
from localspec.session.state_file import SavedSequence, read_state_file, write_state_file

__all__ = ["restore_state", "save_state"]

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
