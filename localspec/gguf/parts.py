"""The files of one model: most models are one file, large ones are split.

Parts find each other by name (llama.h, llama_split_path): model-00001-of-00003.gguf.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from localspec.errors import ModelFileError, ModelNotFoundError
from localspec.gguf.parser import ParsedFile

__all__ = ["check_part", "part_paths", "present_parts"]

_SPLIT_NAME = re.compile(
    r"^(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)$", re.IGNORECASE
)


def part_paths(path: Path) -> tuple[Path, ...]:
    """All parts of a split model, by the name of one of them; the path itself if it is whole."""
    found = _SPLIT_NAME.match(path.name)
    if not found:
        return (path,)
    count = int(found["count"])
    ending = f"-of-{count:05d}{found['suffix']}"
    names = [f"{found['stem']}-{i:05d}{ending}" for i in range(1, count + 1)]
    return tuple(path.with_name(name) for name in names) or (path,)


def present_parts(path: Path) -> tuple[Path, ...]:
    """All parts, each of them a file. Raises ModelNotFoundError, and ModelFileError for a path
    that is no file.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, PermissionError):
            raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
        raise ModelNotFoundError(f"there is no file {path}") from None
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError(f"{path} is a folder: give the .gguf file in it")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{path} is a device or a pipe: give a .gguf file on a disk")
    parts = part_paths(path)
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelNotFoundError(
            f"{path.name} is one of {len(parts)} parts, and {len(missing)} are missing from "
            f"{path.parent}: {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''}. Fetch "
            "them into the same folder"
        )
    return parts


def check_part(found: ParsedFile, no: int, parts: tuple[Path, ...]) -> None:
    """Raise ModelFileError unless the file is the part that its name says (counted from 0)."""
    said_no = found.metadata.get("split.no", no)
    said_count = found.metadata.get("split.count", 0) or len(parts)
    if isinstance(said_count, int) and said_count > 1 and len(parts) == 1:
        raise ModelFileError(
            f"{parts[0]} is one of {said_count} parts, and they find each other by name: call it "
            f"as it was, such as model-00001-of-{said_count:05d}.gguf"
        )
    if (said_no, said_count) != (no, len(parts)):
        raise ModelFileError(
            f"{parts[no]} says it is part {said_no} (from 0) of {said_count}, its name says part "
            f"{no} of {len(parts)}: fetch the model again"
        )
