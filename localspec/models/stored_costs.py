"""Measured costs on disk, so that a later load need not measure again.

One small JSON file for each model file and setting. The key is the file's path, size and time of
change: hashing a gigabyte at every load would cost more than it saves.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

__all__ = ["costs_folder", "load_costs", "save_costs"]


_MOST_FILES = 200
_STALE_S = 3600.0  # a partial file this old was left by a process that was killed


def costs_folder() -> Path:
    """Where the tables lie: in $LOCALSPEC_CACHE, else in the platform's cache folder."""
    chosen = os.environ.get("LOCALSPEC_CACHE")
    folder = Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("localspec")
    return folder / "costs"


def load_costs(model: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was stored for this file and these settings, None when there is nothing usable."""
    try:
        stored = json.loads(_file(model, settings).read_text("utf-8"))
        costs = stored["costs"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return costs if isinstance(costs, dict) else None


def save_costs(model: Path, settings: Mapping[str, Any], costs: Mapping[str, Any]) -> bool:
    """Store a table; False when the folder cannot be written, which harms nothing."""
    with contextlib.suppress(OSError):
        path = _file(model, settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        # a name of its own: two sessions may end at once, in two processes or in one
        partial = path.with_suffix(f".{uuid.uuid4().hex}.part")
        text = json.dumps({"model": str(model), "settings": dict(settings), "costs": costs})
        try:
            partial.write_text(text, "utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        _prune(path.parent)
        return True
    return False


def _prune(folder: Path) -> None:
    """Forget the tables that were not renewed for the longest time."""
    written: list[tuple[float, Path]] = []
    for file in folder.glob("*.json"):
        with contextlib.suppress(OSError):  # another process prunes too
            written.append((file.stat().st_mtime, file))
    for _, file in sorted(written, reverse=True)[_MOST_FILES:]:
        file.unlink(missing_ok=True)
    for file in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _STALE_S:
                file.unlink()


def _file(model: Path, settings: Mapping[str, Any]) -> Path:
    status = model.stat()
    key = [str(model.resolve()), status.st_size, status.st_mtime_ns, dict(settings)]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    return costs_folder() / f"{digest}.json"
