"""How well a model predicts a text, and how far its law is from a reference model's.

The figures are those of llama-perplexity, plain and with --kl-divergence, and Σ min(p, q), which
is the chance that a draft token is accepted. Teacher-forced: nothing is generated.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.bench.log_probs import Distance, Estimate, Row, distance, log_softmax
from localspec.bench.reader import DEFAULT_N_CTX, Conditions, Progress, Reader, Text
from localspec.bench.reference import Reference
from localspec.errors import InvalidOptionError, VocabularyMismatchError
from localspec.gguf.header import GGUFHeader, read_header
from localspec.gguf.vocabulary_match import compare_vocabularies
from localspec.llama.context import CancelFlag
from localspec.session.options import LoadOptions

__all__ = ["Divergence", "Quality", "measure_quality"]

_ADVICE = "Only models of one vocabulary can be compared token by token: take another reference"


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of a model's law q from the reference's p, over the scored tokens.

    log_ppl_ratio: mean ln(PPL / reference's PPL). kl and its percentiles: Σ p ln(p/q), nats.
    same_top: share of tokens before which both find the same id most probable. overlap: mean
    Σ min(p, q). reference_perplexity: from the stored rows.
    """

    reference: str
    reference_perplexity: Estimate
    log_ppl_ratio: Estimate
    kl: Estimate
    kl_median: float
    kl_p90: float
    kl_p99: float
    kl_max: float
    same_top: Estimate
    overlap: Estimate


@dataclass(frozen=True, slots=True)
class Quality:
    """One model on one text. divergence is None without a reference.

    model: the file's name. quant: such as Q4_K_M. size_bytes: of all its parts. n_scored: tokens
    that the figures are means over. seconds: of reading the text, without loading.
    """

    model: str
    quant: str
    size_bytes: int
    text: str
    text_sha256: str
    n_chunks: int
    n_scored: int
    perplexity: Estimate
    divergence: Divergence | None
    conditions: Conditions
    seconds: float
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The same as nested dicts of numbers and strings."""
        return asdict(self)

    @classmethod
    def of_reference(cls, reference: Reference) -> Quality:
        """What was measured while the reference was recorded."""
        header = read_header(reference.model_path)
        return cls(
            header.path.name,
            header.quant,
            header.total_size_bytes,
            reference.text_name,
            reference.text_sha256,
            reference.chunks.n_chunks,
            reference.chunks.n_scored,
            reference.perplexity,
            None,
            reference.conditions,
            reference.seconds,
            reference.notes,
        )


def measure_quality(
    model_path: Path,
    text: Text,
    *,
    reference: Reference | None = None,
    n_chunks: int | None = None,
    loading: LoadOptions | None = None,
    cancel: CancelFlag | None = None,
    on_progress: Progress | None = None,
) -> Quality:
    """Let the model read the text; with a reference, compare the two laws at every scored token.

    loading: n_ctx is the length of a chunk; None is the reference's, else 512. n_chunks: at most
    so many. The model reads the reference's ids, which a shared vocabulary makes its own. Ids that
    one of the two lacks (padding) count as absent in both. Raises TextError, CancelledError,
    VocabularyMismatchError, InvalidOptionError for a reference on another text or chunk length,
    and what loading raises.
    """
    if n_chunks is not None and n_chunks < 1:
        raise InvalidOptionError(f"n_chunks is {n_chunks}: it must be 1 or more")
    loading = loading or LoadOptions()
    n_ctx = loading.n_ctx or DEFAULT_N_CTX
    if reference is not None:
        reference.require_text(text)
        n_ctx = loading.n_ctx or reference.conditions.n_ctx
        if n_ctx != reference.conditions.n_ctx:
            raise InvalidOptionError(
                f"the reference was recorded in chunks of {reference.conditions.n_ctx:,} tokens, "
                f"not {n_ctx:,}: use its n_ctx, or record it again"
            )
    # before the weights are loaded, which takes longer
    comparison = _Comparison(reference, read_header(model_path)) if reference else None
    with Reader(model_path, n_ctx, loading, cancel) as reader:
        divergence = None
        notes = reader.notes
        if reference is None or comparison is None:
            chunks = reader.chunk(text).head(n_chunks)
            nll, seconds = reader.read(chunks, _score, on_progress)
        else:
            chunks = reference.chunks.head(n_chunks)
            with closing(comparison):
                nll, seconds = reader.read(chunks, comparison.score, on_progress)
            divergence = comparison.result(nll)
            differences = reference.conditions.differences(reader.conditions)
            if differences:
                notes.append(f"reference and model were read with {', '.join(differences)}")
        header = reader.header
        return Quality(
            header.path.name,
            header.quant,
            header.total_size_bytes,
            text.name,
            text.sha256,
            chunks.n_chunks,
            chunks.n_scored,
            Estimate.perplexity(nll),
            divergence,
            reader.conditions,
            seconds,
            tuple(notes),
        )


def _score(row: Row, token: int) -> float:
    return -float(log_softmax(row)[token])


class _Comparison:
    """Walks through the stored rows while a model reads the same tokens."""

    def __init__(self, reference: Reference, model: GGUFHeader) -> None:
        header = read_header(reference.model_path)
        self._reference = header.path.name
        self._ids = _shared_ids(reference, header, model)
        self._rows = reference.rows()
        self._reference_nll: list[float] = []
        self._distances: list[Distance] = []

    def score(self, row: Row, token: int) -> float:
        stored, log_q = next(self._rows), log_softmax(row)
        nll = -float(log_q[token])
        self._reference_nll.append(-float(stored.log_p[token]))
        if self._ids is not None:
            stored, log_q = stored.only(self._ids), log_softmax(log_q[self._ids])
        self._distances.append(distance(stored, log_q))
        return nll

    def result(self, nll: npt.NDArray[np.float64]) -> Divergence:
        kl = np.array([found.kl for found in self._distances])
        median, p90, p99 = (float(x) for x in np.percentile(kl, (50, 90, 99)))
        return Divergence(
            self._reference,
            Estimate.perplexity(self._reference_nll),
            Estimate.of(nll - np.array(self._reference_nll)),
            Estimate.of(kl),
            median,
            p90,
            p99,
            float(kl.max()),
            Estimate.of([found.same_top for found in self._distances]),
            Estimate.of([found.overlap for found in self._distances]),
        )

    def close(self) -> None:
        self._rows.close()


def _shared_ids(
    reference: Reference, header: GGUFHeader, model: GGUFHeader
) -> slice | npt.NDArray[np.intp] | None:
    """The ids that mean the same to both; None when these are all."""
    match = compare_vocabularies(header, model, roles=("reference", "model"), advice=_ADVICE)
    n_shared = match.n_shared
    differing = np.array(sorted(match.differing_ids), np.intp)
    strange = np.union1d(differing, np.arange(n_shared, reference.n_vocab))
    in_text = reference.foreign(strange)
    if in_text:
        raise VocabularyMismatchError(
            f"the text holds token {in_text[0]}, which {model.path.name} lacks or spells "
            f"otherwise than the reference {header.path.name}. {_ADVICE}"
        )
    if len(differing):
        return np.setdiff1d(np.arange(n_shared), differing)
    return None if header.n_vocab == model.n_vocab else slice(n_shared)
