"""Where quant levels that were made on this machine lie, and under which names.

Knows nothing of quantising. A level's name holds its source's stem, its type, and a digest of the
source and the importance matrix: path, size and time of change.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["level_path", "levels_folder"]

_MOST_STEM = 180  # bytes: with type, digest and the marks of an unfinished file still under 255


def levels_folder() -> Path:
    """In $LOCALSPEC_CACHE, else in the platform's cache folder."""
    chosen = os.environ.get("LOCALSPEC_CACHE")
    root = Path(chosen).expanduser() if chosen else user_cache_path("localspec")
    return root / "levels"


def level_path(source: Path, type_name: str, importance: Path | None = None) -> Path:
    """The file of a level, whether it was made yet or not. The source must exist."""
    key = [_identity(source), _identity(importance) if importance is not None else None]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:10]
    stem = source.stem
    while len(os.fsencode(stem)) > _MOST_STEM:
        stem = stem[:-1]
    return levels_folder() / f"{stem}.as-{type_name}.{digest}.gguf"


def _identity(path: Path) -> list[str | int]:
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]
