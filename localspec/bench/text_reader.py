"""A model reads a fixed text in chunks and gives the rows of logits that are scored.

The text is the built-in one or a file of the user's. As in llama-perplexity, the first token of a
chunk is replaced by BOS, and the second half of the chunk is scored.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt

from localspec.errors import EngineError, InvalidOptionError, TextError
from localspec.llama.context import Context
from localspec.llama.devices import physical_cores
from localspec.llama.model import Model
from localspec.llama.probe import vetted_header
from localspec.session.options import LoadOptions

__all__ = [
    "DEFAULT_N_CTX",
    "Chunks",
    "Estimate",
    "Progress",
    "Reader",
    "Text",
    "built_in",
    "chunk",
    "log_softmax",
    "read_text",
    "require_bytes",
]

DEFAULT_N_CTX = 512  # llama-perplexity's
_MIN_N_CTX = 16
_ROWS_BYTES = 128 << 20  # of logits, returned by one decode

Progress = Callable[[int, int, float], None]  # chunks done, chunks in all, perplexity so far
Row = npt.NDArray[np.float32]


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
        raise TextError(f"the text {path} is not a regular file: give a file on a disk")
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
        raise TextError(f"the text {path} is empty: give one of a few thousand words")
    return Text(str(path), content)


def _without_last_newline(content: str) -> str:
    return content[:-1] if content.endswith("\n") else content


@dataclass(frozen=True, slots=True)
class Chunks:
    """ids: int32, shape (n_chunks, n_ctx), without the BOS that replaces a chunk's first id."""

    ids: npt.NDArray[np.int32]

    @property
    def n_chunks(self) -> int:
        """How many there are."""
        return int(self.ids.shape[0])

    @property
    def n_ctx(self) -> int:
        """Tokens of each."""
        return int(self.ids.shape[1])

    @property
    def first(self) -> int:
        """The first row of a chunk that is scored."""
        return self.n_ctx // 2

    @property
    def n_scored(self) -> int:
        """Tokens scored, of all chunks together."""
        return self.n_chunks * (self.n_ctx - 1 - self.first)

    def head(self, n_chunks: int | None) -> Chunks:
        """The first n_chunks, at most; None is all."""
        return Chunks(self.ids[:n_chunks])


def require_bytes(n_bytes: int, n_ctx: int, text_name: str) -> None:
    """Raises TextError where no vocabulary can make two chunks of so little text."""
    if n_bytes < 2 * n_ctx:  # a token stands for a byte at least
        raise TextError(
            f"the text {text_name} has {n_bytes:,} bytes, and two chunks of {n_ctx:,} tokens need "
            f"about {8 * n_ctx:,}: give a longer text"
        )


def chunk(ids: Sequence[int], n_ctx: int, text_name: str) -> Chunks:
    """Cut `ids`. Raises TextError for fewer than two chunks, InvalidOptionError for tiny ones."""
    if n_ctx < _MIN_N_CTX:
        raise InvalidOptionError(
            f"a chunk of {n_ctx} tokens is too short: use {_MIN_N_CTX} or more"
        )
    n_chunks = len(ids) // n_ctx
    if n_chunks < 2:
        raise TextError(
            f"the text {text_name} has {len(ids):,} tokens, and two chunks of {n_ctx:,} need "
            f"{2 * n_ctx:,}: give a longer text, or a smaller n_ctx"
        )
    return Chunks(np.array(ids[: n_chunks * n_ctx], np.int32).reshape(n_chunks, n_ctx))


@dataclass(frozen=True, slots=True)
class Estimate:
    """error: one standard error, tokens taken as independent."""

    value: float
    error: float

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Estimate:
        """The mean of at least two values, shape (n,); its error is σ / sqrt(n − 1), σ over n."""
        array = np.asarray(values, np.float64)
        return cls(float(array.mean()), float(array.std() / math.sqrt(len(array) - 1)))

    @classmethod
    def perplexity(cls, nll: npt.ArrayLike) -> Estimate:
        """exp of the mean negative log-likelihood (nats); the error by exp's slope."""
        mean = cls.of(nll)
        value = math.exp(min(mean.value, 700.0))  # a float holds no more
        return cls(value, value * mean.error)


def log_softmax(row: Row) -> Row:
    """ln p from logits, both float32, shape (n,). Raises EngineError for logits that are NaN."""
    top = float(row.max())
    if not math.isfinite(top):
        raise EngineError(
            "the model computed logits that are not numbers: the file may be damaged, or its quant "
            "too coarse; try another quant, or flash_attn off"
        )
    shifted = row - np.float32(top)
    total = float(np.exp(shifted).sum(dtype=np.float64))
    shifted -= np.float32(math.log(total))
    log_p: Row = shifted
    return log_p


class Reader:
    """A loaded model; use it as a context manager.

    n_ctx: tokens of a chunk, whatever `loading` says. notes: what a person should know about the
    load. conditions: what logits depend on besides the file and the text. Raises what Model and
    Context raise, and ModelKindError for a file that cannot write.
    """

    def __init__(self, path: Path, n_ctx: int, loading: LoadOptions) -> None:
        self.notes: list[str] = []
        header = vetted_header(path, "model that is measured", self.notes)
        self._model = Model(
            header.path,
            n_gpu_layers=loading.n_gpu_layers,
            main_gpu=loading.main_gpu,
            tensor_split=loading.tensor_split,
        )
        try:
            self._context = self._make_context(n_ctx, loading)
        except BaseException:
            self._model.close()
            raise
        self._n_ctx = n_ctx
        self.n_vocab = self._context.n_vocab
        self.conditions = {
            "n_batch": self._context.n_batch,
            "n_rows": self._context.max_rows,
            "flash_attn": loading.flash_attn,
            "type_k": self._context.type_k,
            "type_v": self._context.type_v,
        }

    def chunk(self, text: Text) -> Chunks:
        """The text as this vocabulary spells it. Raises TextError for one that is too short."""
        ids = self._model.vocabulary.tokenize(text.content, cut_markers=False)
        return chunk(ids, self._n_ctx, text.name)

    def read(
        self,
        chunks: Chunks,
        score: Callable[[Row, int], float],
        on_progress: Progress | None = None,
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Call `score(row, next token)` for each scored token; what it returned, and seconds.

        score: returns the negative log-likelihood of the token; its row, float32 (n_vocab,), dies
        with the call.
        """
        nll = np.empty(chunks.n_scored)
        n = 0
        started = perf_counter()
        for i, ids in enumerate(chunks.ids.tolist()):
            for row, token in self._rows(ids, chunks.first):
                nll[n] = score(row, token)
                n += 1
            if on_progress is not None:
                on_progress(i + 1, chunks.n_chunks, Estimate.perplexity(nll[:n]).value)
        return nll, perf_counter() - started

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()
        self._model.close()

    def _rows(self, ids: list[int], first: int) -> Iterator[tuple[Row, int]]:
        """The rows first … len(ids) − 2 of a chunk, each with the token that follows it."""
        context, bos = self._context, self._model.vocabulary.bos
        fed = ids if bos is None else [bos, *ids[1:]]
        context.clear()
        context.decode(fed[:first], n_rows=0)
        for at in range(first, len(fed), context.max_rows):
            piece = fed[at : at + context.max_rows]
            rows = context.decode(piece, n_rows=len(piece))
            # the last row of a chunk is computed too, for a whole block, and not used
            yield from zip(rows, ids[at + 1 : at + 1 + len(piece)], strict=False)

    def _make_context(self, n_ctx: int, loading: LoadOptions) -> Context:
        n_train = self._model.n_ctx_train
        if n_train and n_ctx > n_train:
            self.notes.append(
                f"n_ctx {n_ctx:,} is more than the {n_train:,} tokens that "
                f"{self._model.path.name} was trained for"
            )
        cache = "bf16" if loading.exact else "f16"
        return Context(
            self._model,
            n_ctx=n_ctx,
            n_batch=loading.n_batch,
            max_rows=_rows_at_once(self._model.vocabulary.n_tokens),
            n_threads=loading.n_threads or physical_cores(),
            n_threads_batch=loading.n_threads_batch,
            flash_attn=loading.flash_attn,
            type_k=loading.type_k or cache,
            type_v=loading.type_v or cache,
        )


def _rows_at_once(n_vocab: int) -> int:
    """A power of two: in blocks of 64 and more llama.cpp's CPU attention rounds as in one batch.

    Blocks of other sizes move a chunk's perplexity by some 0.2 % (Q4_K_M, Qwen2.5 0.5B).
    """
    return 1 << max(0, (_ROWS_BYTES // (4 * n_vocab)).bit_length() - 1)
