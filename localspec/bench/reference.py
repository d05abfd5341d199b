"""What a reference model says at every scored token of a text, kept on disk.

Made once; other models are then compared with it token by token, without loading it again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from localspec.bench.chunks import Chunks
from localspec.bench.estimate import Estimate
from localspec.bench.kld_file import KldReader, writing
from localspec.bench.log_probs import Row, Stored, log_softmax
from localspec.bench.reader import DEFAULT_N_CTX, Conditions, Progress, Reader
from localspec.bench.text import Text
from localspec.errors import InvalidOptionError
from localspec.llama.context import CancelFlag
from localspec.session.options import LoadOptions

__all__ = ["Reference"]

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
