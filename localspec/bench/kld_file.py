"""llama-perplexity's base file: the ids of all chunks, then a stored row for each scored token.

Layout (llama.cpp, tools/perplexity/perplexity.cpp, native byte order): the eight bytes of MAGIC,
int32 n_ctx, n_vocab and n_chunk, int32 ids, uint16 rows as in log_probs.py. Written and read row
by row. Knows nothing of models.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from localspec.bench.chunks import Chunks
from localspec.bench.log_probs import Row, Stored, decode, encode, row_words
from localspec.errors import DiskSpaceError, InvalidOptionError

__all__ = ["KldReader", "KldWriter", "size_bytes", "writing"]

MAGIC = b"_logits_"


def size_bytes(chunks: Chunks, n_vocab: int) -> int:
    """Of the file for these chunks."""
    return len(MAGIC) + 12 + chunks.ids.nbytes + 2 * chunks.n_scored * row_words(n_vocab)


class KldWriter:
    """Appends rows to a file whose head it has written."""

    def __init__(self, out: BinaryIO, chunks: Chunks, n_vocab: int) -> None:
        self._out = out
        self._words = np.zeros(row_words(n_vocab), np.uint16)
        out.write(MAGIC)
        out.write(np.array([chunks.n_ctx, n_vocab, chunks.n_chunks], np.int32).tobytes())
        out.write(chunks.ids.tobytes())

    def write(self, log_p: Row) -> None:
        """One row, float32 (n_vocab,)."""
        encode(log_p, self._words)
        self._out.write(self._words.data)


class KldReader:
    """The head of a file, and its rows from the first on. Raises InvalidOptionError for others."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                magic, head = file.read(len(MAGIC)), file.read(12)
                if magic != MAGIC or len(head) < 12:
                    raise InvalidOptionError(f"{path} holds no log-probabilities: record it again")
                n_ctx, self.n_vocab, n_chunks = (int(n) for n in np.frombuffer(head, np.int32))
                ids = np.frombuffer(file.read(4 * n_ctx * n_chunks), np.int32)
                self._start = file.tell()
            self.chunks = Chunks(ids.reshape(n_chunks, n_ctx))
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidOptionError):
                raise
            raise InvalidOptionError(f"{path} cannot be read: {error}") from None
        whole, found = size_bytes(self.chunks, self.n_vocab), path.stat().st_size
        if whole != found:
            raise InvalidOptionError(
                f"{path} has {found:,} bytes and should have {whole:,}: record it again"
            )
        self._path = path

    def rows(self) -> Generator[Stored, None, None]:
        """Each row in turn; close the iterator to close the file."""
        words = np.zeros(row_words(self.n_vocab), np.uint16)
        with self._path.open("rb") as file:
            file.seek(self._start)
            while file.readinto(words.data) == words.nbytes:
                yield decode(words, self.n_vocab)


@contextmanager
def writing(path: Path, chunks: Chunks, n_vocab: int) -> Iterator[KldWriter]:
    """A writer of `path`, which appears whole at the end, or not at all.

    Raises DiskSpaceError, before anything is written where that can be known, and
    InvalidOptionError for a folder that cannot be written.
    """
    needed = size_bytes(chunks, n_vocab)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise _unwritable(path, error) from None
    if free < needed:
        raise _no_space(path, needed, free)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as out:
            yield KldWriter(out, chunks, n_vocab)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_space(path, needed, free) from None
        raise _unwritable(path, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def _no_space(path: Path, needed: int, free: int) -> DiskSpaceError:
    return DiskSpaceError(
        f"the log-probabilities of the reference need {needed / 1e9:.2f} GB, and {path.parent} "
        f"had {free / 1e9:.2f} GB free: make room, use another folder, or fewer chunks"
    )


def _unwritable(path: Path, error: OSError) -> InvalidOptionError:
    return InvalidOptionError(
        f"the folder {path.parent} cannot be written ({error.strerror or error}): use another"
    )
