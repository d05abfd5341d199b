"""The text that quality is measured on: the built-in one, or a file of the user's.

The built-in text is part of the measurement: a changed letter changes every figure, and the
digest that goes with each result says which text it was. Knows nothing of tokens.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from localspec.errors import TextError

__all__ = ["Text", "built_in", "read_text"]


@dataclass(frozen=True, slots=True)
class Text:
    """name: `built-in`, or the file's path as given."""

    name: str
    content: str = field(repr=False)

    @property
    def sha256(self) -> str:
        """Of the UTF-8 bytes, in hexadecimal."""
        return hashlib.sha256(self.content.encode()).hexdigest()


def built_in() -> Text:
    """Prose, instructions, maths, code, a dialogue and letters: about 7,000 tokens of English."""
    raw = resources.files("localspec.bench").joinpath("texts/mixed.txt").read_bytes()
    return Text("built-in", _without_last_newline(raw.decode().replace("\r\n", "\n")))


def read_text(path: Path) -> Text:
    """A UTF-8 file, less one newline at its end, as llama-perplexity reads it.

    Raises TextError when it is a pipe, cannot be read, is not UTF-8, or is empty.
    """
    if path.exists() and not path.is_file():
        raise TextError(
            f"the text {path} is no file: it is read several times, so give a file on a disk"
        )
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TextError(f"the text {path} cannot be read: {error.strerror or error}") from None
    try:
        content = _without_last_newline(raw.decode())
    except UnicodeDecodeError as error:
        raise TextError(
            f"the text {path} is not UTF-8: byte {error.start:,} is 0x{raw[error.start]:02X}. "
            "Convert it, for example with `iconv -f LATIN1 -t UTF-8`"
        ) from None
    if not content.strip():
        raise TextError(f"the text {path} is empty: give one of some thousand words")
    return Text(str(path), content)


def _without_last_newline(content: str) -> str:
    return content[:-1] if content.endswith("\n") else content
