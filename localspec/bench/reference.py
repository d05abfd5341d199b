"""What a reference model says at every scored token of a text, kept on disk.

The file is llama-perplexity's base file: the ids of all chunks, then a stored row for each scored
token.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from localspec.bench.log_probs import Estimate, Row, Stored, decode, encode, log_softmax, row_words
from localspec.bench.reader import DEFAULT_N_CTX, Chunks, Conditions, Progress, Reader, Text
from localspec.errors import DiskSpaceError, InvalidOptionError
from localspec.llama.context import CancelFlag
from localspec.session.options import LoadOptions

__all__ = ["KldReader", "KldWriter", "Reference", "size_bytes", "writing"]

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


VERSION = 1
_ROWS, _FACTS = "reference.kld", "reference.json"


@dataclass(frozen=True, slots=True)
class Reference:
    """A recorded model: `record` makes one, `open` finds it again.

    perplexity: as it was computed; from the stored rows it comes out a little off. seconds: of
    reading the text. notes: what should be known about the record.
    """

    folder: Path
    model_path: Path
    text_name: str
    text_sha256: str
    conditions: Conditions
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
        cancel: CancelFlag | None = None,
        on_progress: Progress | None = None,
    ) -> Reference:
        """Let the model read the text and write its log-probabilities into `folder`.

        loading: n_ctx is the length of a chunk, 512 if None. n_chunks: at most so many; None
        takes the whole text. Replaces an earlier record when done; until then, and after an error
        or a cancel, nothing is left of the new one. Needs 2 bytes × n_vocab for each scored token
        on the disk, and no more than a batch of rows in memory. Raises TextError, CancelledError,
        DiskSpaceError, InvalidOptionError for a folder that cannot be written, and what loading
        raises.
        """
        loading = loading or LoadOptions()
        with Reader(model_path, loading.n_ctx or DEFAULT_N_CTX, loading, cancel) as reader:
            chunks = reader.chunk(text).head(_at_least_one(n_chunks))
            with writing(folder / _ROWS, chunks, reader.n_vocab) as out:

                def score(row: Row, token: int) -> float:
                    log_p = log_softmax(row)
                    out.write(log_p)
                    return -float(log_p[token])

                nll, seconds = reader.read(chunks, score, on_progress)
                (folder / _FACTS).unlink(missing_ok=True)
            recorded = cls(
                folder,
                model_path.resolve(),
                text.name,
                text.sha256,
                reader.conditions,
                Estimate.perplexity(nll),
                seconds,
                tuple(reader.notes),
                chunks,
                reader.n_vocab,
            )
        recorded._write_facts()
        return recorded

    @classmethod
    def open(cls, folder: Path) -> Reference:
        """An earlier record. Raises InvalidOptionError when it is missing, damaged, or stale.

        Stale: the model's file has another size or time than when it was recorded.
        """
        path = folder / _FACTS
        try:
            facts = json.loads(path.read_text("utf-8"))
            if facts["version"] != VERSION:
                raise ValueError(f"version {facts['version']}, not {VERSION}")
            model_path = Path(facts["model_path"])
            if _stamp(model_path) != facts["model_stamp"]:
                raise InvalidOptionError(
                    f"{model_path} has changed since {folder} was recorded: record it again"
                )
            stored = KldReader(folder / _ROWS)
            return cls(
                folder,
                model_path,
                facts["text_name"],
                facts["text_sha256"],
                Conditions(**facts["conditions"]),
                Estimate(**facts["perplexity"]),
                float(facts["seconds"]),
                tuple(facts["notes"]),
                stored.chunks,
                stored.n_vocab,
            )
        except InvalidOptionError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidOptionError(
                f"{folder} holds no reference that can be used ({error}): record it again"
            ) from None

    def rows(self) -> Generator[Stored, None, None]:
        """The stored law at each scored token, in order; close it to close the file."""
        return KldReader(self.folder / _ROWS).rows()

    def require_text(self, text: Text) -> None:
        """Raise InvalidOptionError when another text was recorded."""
        if text.sha256 != self.text_sha256:
            raise InvalidOptionError(
                f"the reference in {self.folder} was recorded on another text than {text.name} "
                f"({self.text_name}, SHA-256 {self.text_sha256[:12]}…, not {text.sha256[:12]}…): "
                "record it again"
            )

    def foreign(self, ids: npt.NDArray[np.intp]) -> list[int]:
        """Those of `ids` that the recorded text holds."""
        return [int(i) for i in np.intersect1d(self.chunks.ids, ids)]

    def _write_facts(self) -> None:
        facts = {
            "version": VERSION,
            "model_path": str(self.model_path),
            "model_stamp": _stamp(self.model_path),
            "text_name": self.text_name,
            "text_sha256": self.text_sha256,
            "conditions": asdict(self.conditions),
            "perplexity": asdict(self.perplexity),
            "seconds": self.seconds,
            "notes": self.notes,
        }
        temporary = self.folder / f".{_FACTS}.{os.getpid()}.part"
        try:
            temporary.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
            os.replace(temporary, self.folder / _FACTS)
        finally:
            temporary.unlink(missing_ok=True)


def _at_least_one(n_chunks: int | None) -> int | None:
    if n_chunks is not None and n_chunks < 1:
        raise InvalidOptionError(f"n_chunks is {n_chunks}: it must be 1 or more")
    return n_chunks


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
