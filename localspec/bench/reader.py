"""A model that reads chunks of a fixed text and gives the rows of logits that are scored.

Rows come a few at a time and are to be reduced at once, so that memory does not grow with the
chunk: no array of n_ctx × n_vocab is ever made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt

from localspec.bench.chunks import Chunks, chunk
from localspec.bench.estimate import Estimate
from localspec.bench.text import Text
from localspec.errors import CancelledError
from localspec.llama.context import CancelFlag, Cancelled, Context
from localspec.llama.devices import engine_identity, physical_cores
from localspec.llama.model import Model
from localspec.llama.vetting import vetted_header
from localspec.session.options import LoadOptions

__all__ = ["DEFAULT_N_CTX", "Conditions", "Progress", "Reader"]

DEFAULT_N_CTX = 512  # llama-perplexity's
_ROWS_BYTES = 128 << 20  # of logits, returned by one decode

Progress = Callable[[int, int, float], None]  # chunks done, chunks in all, perplexity so far
Row = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What logits depend on besides the file and the text.

    n_ctx: tokens of a chunk. n_rows: rows of logits that one decode returned at most.
    """

    n_ctx: int
    n_batch: int
    n_rows: int
    n_threads: int
    flash_attn: str
    type_k: str
    type_v: str
    device: str
    engine: str

    def differences(self, other: Conditions) -> list[str]:
        """Such as `n_batch 64 and 512`; threads do not count."""
        names = [name for name in Conditions.__slots__ if name != "n_threads"]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [f"{name} {a} and {b}" for name, a, b in pairs if a != b]


class Reader:
    """A loaded model; close it, or use it as a context manager.

    n_ctx: tokens of a chunk, whatever `loading` says. notes: what a person should know about the
    load. Raises what Model and Context raise, and ModelKindError for a file that cannot write.
    """

    def __init__(
        self, path: Path, n_ctx: int, loading: LoadOptions, cancel: CancelFlag | None
    ) -> None:
        self.notes: list[str] = []
        self.header = vetted_header(path, "model that is measured", self.notes)
        self.cancel = cancel or CancelFlag()
        self._model = Model(
            self.header.path,
            n_gpu_layers=loading.n_gpu_layers,
            main_gpu=loading.main_gpu,
            tensor_split=loading.tensor_split,
        )
        try:
            self._context = self._make_context(n_ctx, loading)
        except BaseException:
            self._model.close()
            raise
        self.n_vocab = self._context.n_vocab
        self.conditions = self._conditions(n_ctx, loading)

    def chunk(self, text: Text) -> Chunks:
        """The text as this vocabulary spells it. Raises TextError for one that is too short."""
        ids = self._model.vocabulary.tokenize(text.content, cut_markers=False)
        return chunk(ids, self.conditions.n_ctx, text.name)

    def read(
        self,
        chunks: Chunks,
        score: Callable[[Row, int], float],
        on_progress: Progress | None = None,
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Call `score(row, next token)` for each scored token; what it returned, and seconds.

        score: returns the negative log-likelihood of the token; its row, float32 (n_vocab,), dies
        with the call. Raises CancelledError once the flag is set.
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

    def close(self) -> None:
        """Free the context and the weights."""
        self._context.close()
        self._model.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rows(self, ids: list[int], first: int) -> Iterator[tuple[Row, int]]:
        """The rows first … len(ids) − 2 of a chunk, each with the token that follows it."""
        context, bos = self._context, self._model.vocabulary.bos
        fed = ids if bos is None else [bos, *ids[1:]]
        try:
            context.clear()
            context.decode(fed[:first], n_rows=0)
            for at in range(first, len(fed), context.max_rows):
                piece = fed[at : at + context.max_rows]
                rows = context.decode(piece, n_rows=len(piece))
                # the last row of a chunk is computed too, for a whole block, and not used
                yield from zip(rows, ids[at + 1 : at + 1 + len(piece)], strict=False)
        except Cancelled:
            raise CancelledError("cancelled: nothing of this measurement was kept") from None

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
            cancel=self.cancel,
        )

    def _conditions(self, n_ctx: int, loading: LoadOptions) -> Conditions:
        context, n_gpu_layers = self._context, self._model.n_gpu_layers
        return Conditions(
            n_ctx=n_ctx,
            n_batch=context.n_batch,
            n_rows=context.max_rows,
            n_threads=loading.n_threads_batch or context.n_threads,
            flash_attn=loading.flash_attn,
            type_k=context.type_k,
            type_v=context.type_v,
            device=f"GPU ({n_gpu_layers} layers)" if n_gpu_layers else "CPU",
            engine=engine_identity()[0],
        )


def _rows_at_once(n_vocab: int) -> int:
    """A power of two: in blocks of 64 and more llama.cpp's CPU attention rounds as in one batch.

    Blocks of other sizes move a chunk's perplexity by some 0.2 % (Q4_K_M, Qwen2.5 0.5B).
    """
    return 1 << max(0, (_ROWS_BYTES // (4 * n_vocab)).bit_length() - 1)
