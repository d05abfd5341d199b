"""How far a model's law is from a reference model's, at every scored token of a text.

The figures are those of llama-perplexity, plain and with --kl-divergence, and Σ min(p, q), which
is the chance that a draft token is accepted. Teacher-forced: nothing is generated.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from localspec.bench.reference import Reference, StoredRow
from localspec.bench.text_reader import Estimate, Progress, Reader, Row, log_softmax
from localspec.errors import VocabularyMismatchError
from localspec.gguf.header import GGUFHeader, read_header
from localspec.gguf.vocabulary_match import compare_vocabularies
from localspec.session.options import LoadOptions

__all__ = ["Distance", "Divergence", "distance", "measure_divergence"]

_ADVICE = "Only models of one vocabulary can be compared token by token: take another reference"
_NEGLIGIBLE = -16.0  # ln p; llama-perplexity leaves the rest out of its sum


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of a model's law q from the reference's p, means over n_scored tokens.

    perplexity: the model's own. reference_perplexity: from the stored rows. log_ppl_ratio: mean
    ln(PPL / reference's PPL). kl and its percentiles: Σ p ln(p/q), nats. same_top: share of tokens
    before which both find the same id most probable. overlap: mean Σ min(p, q). seconds: of reading
    the text, without loading. notes: what a person should know about the comparison.
    """

    n_scored: int
    perplexity: Estimate
    reference_perplexity: Estimate
    log_ppl_ratio: Estimate
    kl: Estimate
    kl_median: float
    kl_p90: float
    kl_p99: float
    kl_max: float
    same_top: Estimate
    overlap: Estimate
    seconds: float
    notes: tuple[str, ...] = ()


def measure_divergence(
    model_path: Path,
    reference: Reference,
    *,
    loading: LoadOptions | None = None,
    on_progress: Progress | None = None,
) -> Divergence:
    """Let a model read the reference's ids, which a shared vocabulary makes its own.

    loading: its n_ctx does not count; chunks are the reference's. Ids that one of the two lacks
    (padding) count as absent in both. Raises VocabularyMismatchError, and what loading raises.
    """
    # before the weights are loaded, which takes longer
    comparison = _Comparison(reference, read_header(model_path))
    with Reader(model_path, reference.chunks.n_ctx, loading or LoadOptions()) as reader:
        with closing(comparison):
            nll, seconds = reader.read(reference.chunks, comparison.score, on_progress)
        notes = list(reader.notes)
        theirs, ours = reference.conditions, reader.conditions
        differences = [f"{n} {theirs[n]} and {ours[n]}" for n in ours if theirs[n] != ours[n]]
        if differences:
            notes.append(f"reference and model were read with {', '.join(differences)}")
        return comparison.result(nll, seconds, notes)


class _Comparison:
    """Walks through the stored rows while a model reads the same tokens."""

    def __init__(self, reference: Reference, model: GGUFHeader) -> None:
        self._ids = _shared_ids(reference, model)
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

    def result(self, nll: npt.NDArray[np.float64], seconds: float, notes: list[str]) -> Divergence:
        kl = np.array([found.kl for found in self._distances])
        median, p90, p99 = (float(x) for x in np.percentile(kl, (50, 90, 99)))
        return Divergence(
            n_scored=len(nll),
            perplexity=Estimate.perplexity(nll),
            reference_perplexity=Estimate.perplexity(self._reference_nll),
            log_ppl_ratio=Estimate.of(nll - np.array(self._reference_nll)),
            kl=Estimate.of(kl),
            kl_median=median,
            kl_p90=p90,
            kl_p99=p99,
            kl_max=float(kl.max()),
            same_top=Estimate.of([found.same_top for found in self._distances]),
            overlap=Estimate.of([found.overlap for found in self._distances]),
            seconds=seconds,
            notes=tuple(notes),
        )

    def close(self) -> None:
        self._rows.close()


def _shared_ids(reference: Reference, model: GGUFHeader) -> slice | npt.NDArray[np.intp] | None:
    """The ids that mean the same to both; None when these are all."""
    header = read_header(reference.model_path)
    match = compare_vocabularies(header, model, roles=("reference", "model"), advice=_ADVICE)
    n_shared = match.n_shared
    differing = np.array(sorted(match.differing_ids), np.intp)
    strange = np.union1d(differing, np.arange(n_shared, reference.n_vocab))
    in_text = reference.ids_in_text(strange)
    if in_text:
        raise VocabularyMismatchError(
            f"the text holds token {in_text[0]}, which {model.path.name} lacks or spells "
            f"otherwise than the reference {header.path.name}. {_ADVICE}"
        )
    if len(differing):
        return np.setdiff1d(np.arange(n_shared), differing)
    return None if header.n_vocab == model.n_vocab else slice(n_shared)


@dataclass(frozen=True, slots=True)
class Distance:
    """Of q from p at one position.

    kl: Σ p ln(p/q) in nats, over ids with ln p > −16. overlap: Σ min(p, q), what speculative
    sampling accepts. same_top: the most probable id is the same.
    """

    kl: float
    overlap: float
    same_top: bool


def distance(p: StoredRow, log_q: Row) -> Distance:
    """Of the row log_q, float32 (n,), from a stored p over the same ids."""
    terms = np.exp(p.log_p)
    overlap = np.minimum(terms, np.exp(log_q))
    overlap *= ~p.is_floor  # much faster than an indexed assignment
    terms *= p.log_p - log_q
    terms *= p.log_p > _NEGLIGIBLE
    return Distance(
        float(terms.sum(dtype=np.float64)),
        float(overlap.sum(dtype=np.float64)),
        bool(p.log_p.argmax() == log_q.argmax()),
    )
