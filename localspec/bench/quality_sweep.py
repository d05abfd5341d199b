"""The quality of a sweep's targets: which is the reference of which, what is still to be read.

The reference of models of one size is the best that is at hand: an unquantised file, else the
largest, a level's source among them, never a level made from a lossy source. One process for each
size records the reference on the disk and compares the others with it; then the same for each
target and its drafts, over fewer chunks of the text. Records are deleted at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.bench.model_files import ModelFile, changed_since, model_file
from localspec.bench.plan import Plan
from localspec.bench.quality import measure_divergence
from localspec.bench.reference import Reference
from localspec.bench.results_file import AgreementRow, QualityRow, ResultsFile, require_rows
from localspec.bench.text_reader import Text, built_in, read_text
from localspec.bench.worker import rows_from_process
from localspec.errors import InvalidOptionError, LocalspecError, VocabularyMismatchError
from localspec.jsonl_file import Row
from localspec.session.options import LoadOptions, parse

__all__ = ["QualitySweep", "read_group", "reference_of"]

_RECORDS = ".reading-"  # folders in the sweep's own
_N_CHUNKS_OF_DRAFTS = 4  # of 512 tokens, half of them scored: 1,000 tokens


def reference_of(group: Sequence[ModelFile]) -> ModelFile:
    """The best of some files of one size, their sources included."""
    known = {file.path.resolve() for file in group}
    sources = {file.source for file in group if file.source is not None}
    files = [file for file in group if not file.from_lossy]
    files += [model_file(path, str(path)) for path in sources if path.resolve() not in known]
    return max(files, key=lambda file: (file.error is None, file.is_unquantised, file.size_bytes))


class QualitySweep:
    """Reads what is missing into an open ResultsFile. on_doing gets a line for each step.

    on_say: what should stay to be read, such as why nothing was measured.

    Raises InvalidOptionError when the rows that are there were read on another text.
    """

    def __init__(
        self,
        plan: Plan,
        results: ResultsFile,
        on_doing: Callable[[str], None],
        on_say: Callable[[str], None],
    ) -> None:
        self._plan, self._results = plan, results
        self._on_doing, self._on_say = on_doing, on_say
        self._text = read_text(plan.text) if plan.text is not None else built_in()
        self._text_words = _text_words(self._text, plan.n_chunks)
        require_rows(results.rows)
        for row in results.of_type("quality"):
            if plan.has_quality and row["text"] not in (None, self._text_words):
                raise InvalidOptionError(
                    f"{results.path} holds the quality on another text: {row['text']}, not "
                    f"{self._text_words}. Give the same --text and --n-chunks, or another --out"
                )

    def run(self) -> None:
        """A target that cannot be read gets a row that says why. Raises DiskSpaceError."""
        self._delete_records()  # of a sweep that was killed: this folder is locked for us
        self._results.drop(lambda r: r["type"] in ("quality", "agreement") and bool(r["error"]))
        groups: dict[int, list[ModelFile]] = defaultdict(list)
        for target in self._plan.targets:
            changed = changed_since(self._results.rows, "target", target)
            if changed is not None:
                self._on_say(f"quality was not measured: {changed}")
            elif target.error is None:
                groups[target.n_params].append(target)
        for group in groups.values():
            self._read(self._job(group))

    def _job(self, group: Sequence[ModelFile]) -> ReadingJob:
        results, plan = self._results, self._plan
        read = {row["target"] for row in results.of_type("quality")}
        compared = {(row["target"], row["draft"]) for row in results.of_type("agreement")}
        measured = {(row["target"], row["draft"]) for row in results.of_type("pair")}
        drafts = [d for d in plan.drafts if changed_since(results.rows, "draft", d) is None]
        by_target = {
            target.label: [d for d in drafts if (target.label, d.label) in measured - compared]
            for target in group
        }
        reference = reference_of(group)
        named = {file.path.resolve(): file for file in group}
        return ReadingJob(
            text=self._text,
            text_words=self._text_words,
            n_chunks=plan.n_chunks,
            loading={k: v for k, v in plan.loading.items() if k != "n_ctx"},
            folder=results.folder / f"{_RECORDS}{os.getpid()}",
            reference=named.get(reference.path.resolve(), reference),
            already_read=frozenset(read),
            targets=[file for file in group if file.label not in read],
            agreements=[(file, by_target[file.label]) for file in group if by_target[file.label]],
        )

    def _read(self, job: ReadingJob) -> None:
        if not job.targets and not job.agreements:
            return
        try:
            error = self._run_worker(job)
        finally:
            # log-probabilities take gigabytes, and a reader that is killed deletes none of its own
            self._delete_records()
        if error is not None:
            self._on_say(f"quality was not measured: {error}")
            done = {row["target"] for row in self._results.of_type("quality")}
            self._results.append(
                [
                    QualityRow(target=t.label, reference=job.reference.label, error=error).as_row()
                    for t in job.targets
                    if t.label not in done
                ]
            )

    def _run_worker(self, job: ReadingJob) -> str | None:
        """None when all was read, else why not."""
        with contextlib.closing(rows_from_process(read_group, job)) as rows:
            for row in rows:
                if row["type"] == "failed":
                    return str(row["error"])
                if row["type"] == "doing":
                    self._on_doing(f"quality: {row['what']} …")
                else:
                    self._results.append([row])
        return None

    def _delete_records(self) -> None:
        for folder in self._results.folder.glob(f"{_RECORDS}*"):
            shutil.rmtree(folder, ignore_errors=True)


def _text_words(text: Text, n_chunks: int | None) -> str:
    """Which text, and how much of it: the same words for the same reading."""
    part = "" if n_chunks is None else f", the first {n_chunks} pieces of 512 tokens"
    return f"{text.name} (SHA-256 {text.sha256[:12]}…){part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingJob:
    """What a process reads: the targets of one size, and then each with its drafts.

    already_read: labels that have their row. folder: for records, made and deleted.
    """

    text: Text
    text_words: str
    n_chunks: int | None
    loading: Mapping[str, Any]
    folder: Path
    reference: ModelFile
    already_read: frozenset[str]
    targets: Sequence[ModelFile]
    agreements: Sequence[tuple[ModelFile, Sequence[ModelFile]]]


def read_group(job: ReadingJob) -> Iterator[Row]:
    """Rows of type `doing` (progress), `quality` and `agreement`; run in a process of its own."""
    loading = parse(LoadOptions, job.loading)
    try:
        if job.targets:
            yield from _qualities(job, loading)
        for target, drafts in job.agreements:
            yield from _agreements(job, loading, target, drafts)
    finally:
        shutil.rmtree(job.folder, ignore_errors=True)


def _qualities(job: ReadingJob, loading: LoadOptions) -> Iterator[Row]:
    name = job.reference.label
    yield {"type": "doing", "what": f"{name} reads the text, as reference"}
    reference = Reference.record(
        job.reference.path, job.text, job.folder, n_chunks=job.n_chunks, loading=loading
    )
    own = QualityRow(
        target=name,
        reference=name,
        perplexity=reference.perplexity.value,
        perplexity_error=reference.perplexity.error,
        n_tokens=reference.chunks.n_scored,
        text=job.text_words,
    )
    if name not in job.already_read and name not in [target.label for target in job.targets]:
        yield own.as_row()  # a level's source, which is no target itself
    for target in job.targets:
        if target.label == name:
            yield own.as_row()
            continue
        yield {"type": "doing", "what": f"{target.label} reads the text"}
        try:
            found = measure_divergence(target.path, reference, loading=loading)
        except LocalspecError as error:
            row = QualityRow(target=target.label, reference=name, error=str(error))
        else:
            row = QualityRow(
                target=target.label,
                reference=name,
                perplexity=found.perplexity.value,
                perplexity_error=found.perplexity.error,
                kl_mean=found.kl.value,
                kl_error=found.kl.error,
                top1_agreement=found.same_top.value,
                n_tokens=found.n_scored,
                text=job.text_words,
            )
        yield row.as_row()


def _agreements(
    job: ReadingJob, loading: LoadOptions, target: ModelFile, drafts: Sequence[ModelFile]
) -> Iterator[Row]:
    n_chunks = min(job.n_chunks or _N_CHUNKS_OF_DRAFTS, _N_CHUNKS_OF_DRAFTS)
    yield {"type": "doing", "what": f"{target.label} and its drafts read the start of the text"}
    try:
        record = Reference.record(
            target.path, job.text, job.folder, n_chunks=n_chunks, loading=loading
        )
    except LocalspecError as error:
        for draft in drafts:
            yield AgreementRow(target=target.label, draft=draft.label, error=str(error)).as_row()
        return
    for draft in drafts:
        try:
            found = measure_divergence(draft.path, record, loading=loading)
        except VocabularyMismatchError as error:
            row = AgreementRow(target=target.label, draft=draft.label, error=str(error))
        else:
            row = AgreementRow(
                target=target.label,
                draft=draft.label,
                kl=found.kl.value,
                sum_min=found.overlap.value,
                n_tokens=found.n_scored,
            )
        yield row.as_row()
