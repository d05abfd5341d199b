"""The process that lets models read a text: a job on stdin, rows on stdout.

A reference is recorded on the disk, the others are compared with it token by token; then the same
for each target and its drafts, over fewer pieces of the text. Records are deleted at the end.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localspec.bench.measure import Row
from localspec.bench.quality import Quality, measure_quality
from localspec.bench.reader import Text, built_in, read_text
from localspec.bench.reference import Reference
from localspec.bench.rows import AgreementRow, QualityRow
from localspec.bench.worker import serve
from localspec.errors import LocalspecError, VocabularyMismatchError
from localspec.session.options import LoadOptions, parse

__all__ = ["main"]

_N_CHUNKS_OF_DRAFTS = 4  # pieces of 512 tokens, half of them scored: 1,000 tokens


def main() -> None:
    """Read what the job on stdin names."""
    serve(_rows)


def _rows(job: Mapping[str, Any]) -> Iterator[Row]:
    """job: text, n_chunks, loading, folder, reference, and targets with the drafts to compare.

    reference, targets and drafts are [label, path]. read: labels that have their row already.
    """
    text = read_text(Path(job["text"])) if job["text"] is not None else built_in()
    loading = parse(LoadOptions, job["loading"])
    folder = Path(job["folder"])
    try:
        yield from _qualities(job, text, loading, folder)
        for label, path, drafts in job["agreements"]:
            yield from _agreements(job, text, loading, folder, label, path, drafts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _qualities(
    job: Mapping[str, Any], text: Text, loading: LoadOptions, folder: Path
) -> Iterator[Row]:
    if not job["targets"]:
        return
    name, path = job["reference"]
    yield {"type": "doing", "what": f"{name} reads the text, as reference"}
    reference = Reference.record(
        Path(path), text, folder, n_chunks=job["n_chunks"], loading=loading
    )
    if name not in job["read"] and name not in [label for label, _ in job["targets"]]:
        found = Quality.of_reference(reference)  # a level's source, which is no target itself
        yield _quality_row(name, name, found, job["text_words"]).as_row()
    for label, path in job["targets"]:
        yield {"type": "doing", "what": f"{label} reads the text"}
        try:
            if label == name:
                found = Quality.of_reference(reference)
            else:
                found = measure_quality(Path(path), text, reference=reference, loading=loading)
        except LocalspecError as error:
            yield QualityRow(target=label, reference=name, error=str(error)).as_row()
        else:
            yield _quality_row(label, name, found, job["text_words"]).as_row()


def _agreements(
    job: Mapping[str, Any],
    text: Text,
    loading: LoadOptions,
    folder: Path,
    target: str,
    path: str,
    drafts: list[list[str]],
) -> Iterator[Row]:
    n_chunks = min(job["n_chunks"] or _N_CHUNKS_OF_DRAFTS, _N_CHUNKS_OF_DRAFTS)
    yield {"type": "doing", "what": f"{target} and its drafts read the beginning of the text"}
    try:
        record = Reference.record(Path(path), text, folder, n_chunks=n_chunks, loading=loading)
    except LocalspecError as error:
        for draft, _ in drafts:
            yield AgreementRow(target=target, draft=draft, error=str(error)).as_row()
        return
    for draft, draft_path in drafts:
        try:
            found = measure_quality(Path(draft_path), text, reference=record, loading=loading)
        except VocabularyMismatchError as error:
            yield AgreementRow(target=target, draft=draft, error=str(error)).as_row()
            continue
        divergence = found.divergence
        assert divergence is not None
        yield AgreementRow(
            target=target,
            draft=draft,
            kl=divergence.kl.value,
            sum_min=divergence.overlap.value,
            n_tokens=found.n_scored,
        ).as_row()


def _quality_row(label: str, reference: str, found: Quality, words: str) -> QualityRow:
    divergence = found.divergence
    return QualityRow(
        target=label,
        reference=reference,
        perplexity=found.perplexity.value,
        perplexity_error=found.perplexity.error,
        kl_mean=divergence.kl.value if divergence else None,
        kl_error=divergence.kl.error if divergence else None,
        top1_agreement=divergence.same_top.value if divergence else None,
        n_tokens=found.n_scored,
        text=words,
    )


if __name__ == "__main__":
    main()
