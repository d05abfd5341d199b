"""What a reference model says at every scored token of a text, kept on disk while others are read.

The file is llama-perplexity's base file: the ids of all chunks, then a row of log-probabilities in
16 bits for each scored token.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from localspec.bench.text_reader import (
    DEFAULT_N_CTX,
    Chunks,
    Estimate,
    Progress,
    Reader,
    Row,
    Text,
    log_softmax,
)
from localspec.errors import DiskSpaceError, InvalidOptionError
from localspec.session.options import LoadOptions

__all__ = ["Reference", "StoredRow", "decode_row", "encode_row", "row_words"]

MAGIC = b"_logits_"
_FILE_NAME = "reference.kld"
_HEAD = 4  # words
_DEPTH = 16.0  # nats below the top that codes reach
_LAST_CODE = 65535

Words = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Reference:
    """What record() made of one model and one text.

    perplexity: as it was computed; from the stored rows it comes out a little off. seconds: of
    reading the text. notes: what should be known about the record.
    """

    folder: Path
    model_path: Path
    conditions: Mapping[str, object]
    perplexity: Estimate
    seconds: float
    notes: tuple[str, ...]
    chunks: Chunks = field(repr=False)
    n_vocab: int

    @classmethod
    def record(
        cls,
        model_path: Path,
        text: Text,
        folder: Path,
        *,
        n_chunks: int | None = None,
        loading: LoadOptions | None = None,
        on_progress: Progress | None = None,
    ) -> Reference:
        """Let the model read the text and write its log-probabilities into `folder`.

        loading: n_ctx is the length of a chunk, 512 if None. n_chunks: at most so many; None
        takes the whole text. Replaces an earlier record when done; until then, and after an error,
        nothing is left of the new one. Needs 2 bytes × n_vocab for each scored token on the disk,
        and no more than a batch of rows in memory. Raises TextError, DiskSpaceError,
        InvalidOptionError for a folder that cannot be written, and what loading raises.
        """
        loading = loading or LoadOptions()
        if n_chunks is not None and n_chunks < 1:
            raise InvalidOptionError(f"n_chunks is {n_chunks}: it must be 1 or more")
        with Reader(model_path, loading.n_ctx or DEFAULT_N_CTX, loading) as reader:
            chunks = reader.chunk(text).head(n_chunks)
            with _writing(folder / _FILE_NAME, chunks, reader.n_vocab) as write:

                def score(row: Row, token: int) -> float:
                    log_p = log_softmax(row)
                    write(log_p)
                    return -float(log_p[token])

                nll, seconds = reader.read(chunks, score, on_progress)
            return cls(
                folder,
                model_path.resolve(),
                reader.conditions,
                Estimate.perplexity(nll),
                seconds,
                tuple(reader.notes),
                chunks,
                reader.n_vocab,
            )

    def rows(self) -> Generator[StoredRow, None, None]:
        """The stored law at each scored token, in order; close it to close the file."""
        words = np.zeros(row_words(self.n_vocab), np.uint16)
        with (self.folder / _FILE_NAME).open("rb") as file:
            file.seek(_head_bytes(self.chunks))
            while file.readinto(words.data) == words.nbytes:
                yield decode_row(words, self.n_vocab)

    def ids_in_text(self, ids: npt.NDArray[np.intp]) -> list[int]:
        """Those of `ids` that the recorded text holds."""
        return [int(i) for i in np.intersect1d(self.chunks.ids, ids)]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A decoded row. log_p: float32, shape (n,). is_floor: True where p may be less than that."""

    log_p: Row
    is_floor: npt.NDArray[np.bool_]

    def only(self, ids: slice | npt.NDArray[np.intp]) -> StoredRow:
        """The law given that one of `ids` comes: the others are as if they did not exist."""
        log_p = self.log_p[ids]
        return StoredRow(log_softmax(log_p), self.is_floor[ids])


def row_words(n_vocab: int) -> int:
    """uint16 words of a stored row: even, as upstream pads it."""
    return _HEAD + 2 * ((n_vocab + 1) // 2)


def encode_row(log_p: Row, words: Words) -> None:
    """Fill `words`, shape (row_words(n),), from ln p, shape (n,)."""
    top = log_p.max()
    low = max(log_p.min(), top - np.float32(_DEPTH))
    step = np.float32((top - low) / _LAST_CODE)
    words[:_HEAD].view(np.float32)[:] = step, low
    words[_HEAD:] = 0
    if step:
        above = np.maximum(log_p, low) - low
        words[_HEAD : _HEAD + len(log_p)] = np.rint(above * (np.float32(1) / step))


def decode_row(words: Words, n_vocab: int) -> StoredRow:
    """The opposite of encode_row, to within half a step: 0.00012 nats."""
    step, low = words[:_HEAD].view(np.float32)
    codes = words[_HEAD : _HEAD + n_vocab]
    return StoredRow(codes * step + low, codes == 0)


def _head_bytes(chunks: Chunks) -> int:
    return len(MAGIC) + 12 + chunks.ids.nbytes


@contextmanager
def _writing(path: Path, chunks: Chunks, n_vocab: int) -> Iterator[Callable[[Row], None]]:
    """A function that appends a row, ln p as float32 (n_vocab,), to a file whose head is written.

    `path` appears whole at the end, or not at all. Raises DiskSpaceError, before anything is
    written where that can be known, and InvalidOptionError for a folder that cannot be written.
    """
    words = np.zeros(row_words(n_vocab), np.uint16)
    needed = _head_bytes(chunks) + chunks.n_scored * words.nbytes
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise _unwritable(path, error) from None
    if free < needed:
        raise _no_space(path, needed, free)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as out:
            out.write(MAGIC)
            out.write(np.array([chunks.n_ctx, n_vocab, chunks.n_chunks], np.int32).tobytes())
            out.write(chunks.ids.tobytes())

            def write(log_p: Row) -> None:
                encode_row(log_p, words)
                out.write(words.data)

            yield write
        os.replace(partial, path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_space(path, needed, free) from None
        raise _unwritable(path, error) from None
    finally:
        partial.unlink(missing_ok=True)


def _no_space(path: Path, needed: int, free: int) -> DiskSpaceError:
    return DiskSpaceError(
        f"the log-probabilities of the reference need {needed / 1e9:.2f} GB, and {path.parent} "
        f"had {free / 1e9:.2f} GB free: make room, use another folder, or fewer chunks"
    )


def _unwritable(path: Path, error: OSError) -> InvalidOptionError:
    return InvalidOptionError(
        f"the folder {path.parent} cannot be written ({error.strerror or error}): use another"
    )
