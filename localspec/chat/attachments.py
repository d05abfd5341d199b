"""Text files put into a message: `@path` anywhere in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import AttachmentError

__all__ = ["Attachment", "attach", "expand"]

_MOST_BYTES = 4_000_000
_REFERENCE = re.compile(r"(?<!\S)@(\"[^\"\n]+\"|'[^'\n]+'|\S+)")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file as it goes into the message. text: with its name and a code fence around it."""

    path: Path
    text: str


def attach(path: Path) -> Attachment:
    """Read a text file. Raises AttachmentError with what is wrong and what to do."""
    try:
        path = path.expanduser()
        if path.is_dir():
            raise AttachmentError(f"{path} is a folder: name one file of it")
        if path.exists() and not path.is_file():  # a pipe or a device may never end
            raise AttachmentError(f"{path} is not a regular file: only text files can be attached")
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise AttachmentError(
                f"{path} is {size / 1e6:.1f} MB, but at most {_MOST_BYTES / 1e6:.0f} MB can be "
                "attached: cut it to the part that matters"
            )
        content = path.read_bytes()
    except FileNotFoundError:
        raise AttachmentError(f"there is no file {path}") from None
    except (OSError, RuntimeError, ValueError) as error:  # "~nobody", a NUL, no permission
        raise AttachmentError(f"{path} cannot be read: {error}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AttachmentError(
            f"{path} is not UTF-8 text (byte {error.start:,} of {len(content):,}): only text "
            "files can be attached"
        ) from None
    if "\0" in text:
        raise AttachmentError(f"{path} is a binary file: only text files can be attached")
    text = text.replace("\r\n", "\n")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    language = path.suffix.lstrip(".")
    body = f"{path.name}:\n{fence}{language}\n{text.rstrip()}\n{fence}"
    return Attachment(path, body)


def expand(text: str) -> tuple[str, list[Attachment]]:
    """The message with every `@path` that names a file replaced by its name, the files behind it.

    A word that only looks like one (`@someone`) stays what it is.
    """
    found: list[Attachment] = []

    def name(match: re.Match[str]) -> str:
        path = Path(match[1].strip("\"'"))
        try:
            if not path.expanduser().is_file():
                return match[0]
        except (OSError, RuntimeError, ValueError):
            return match[0]
        found.append(attach(path))
        return path.name

    told = _REFERENCE.sub(name, text)
    return "\n\n".join([told, *(attachment.text for attachment in found)]), found
