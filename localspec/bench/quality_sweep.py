"""The quality of a sweep's targets: which is the reference of which, what is still to be read.

The reference of models of one size is the best that is at hand: an unquantised file, else the
largest, a level's source among them, never a level made from a lossy source.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from localspec.bench.plan import Contender, Plan, contender
from localspec.bench.reader import built_in, read_text
from localspec.bench.rows import QualityRow, Results, change, require_rows
from localspec.bench.worker_process import worker_rows
from localspec.errors import InvalidOptionError

__all__ = ["QualitySweep", "reference_of"]

_WORKER = "localspec.bench.quality_worker"
_RECORDS = ".reading-"  # folders in the sweep's own


def reference_of(group: Sequence[Contender]) -> Contender:
    """The best of some contenders of one size, their sources included."""
    known = {found.path.resolve() for found in group}
    sources = {found.source for found in group if found.source is not None}
    found = [c for c in group if not c.from_lossy]
    found += [contender(path, str(path)) for path in sources if path.resolve() not in known]
    return max(found, key=lambda c: (c.error is None, c.is_unquantised, c.size_bytes))


class QualitySweep:
    """Reads what is missing into an open Results. on_doing gets a line for each step.

    on_say: what should stay to be read, such as why nothing was measured.

    Raises InvalidOptionError when the rows that are there were read on another text.
    """

    def __init__(
        self,
        plan: Plan,
        results: Results,
        on_doing: Callable[[str], None],
        on_say: Callable[[str], None],
    ) -> None:
        self._plan, self._results = plan, results
        self._on_doing, self._on_say = on_doing, on_say
        self._text_words = _text_words(plan)
        require_rows(results.rows)
        for row in results.rows:
            if (
                plan.has_quality
                and row["type"] == "quality"
                and row["text"] not in (None, self._text_words)
            ):
                raise InvalidOptionError(
                    f"{results.path} holds the quality over another text: {row['text']}, not "
                    f"{self._text_words}. Give the same --text and --n-chunks, or another --out"
                )

    def run(self) -> None:
        """A target that cannot be read gets a row that says why. Raises DiskSpaceError."""
        self._delete_records()  # of a sweep that was killed: this folder is locked for us
        self._results.drop(lambda r: r["type"] in ("quality", "agreement") and bool(r["error"]))
        groups: dict[int, list[Contender]] = defaultdict(list)
        for target in self._plan.targets:
            changed = change(self._results.rows, "target", target)
            if changed is not None:
                self._on_say(f"quality was not measured: {changed}")
            elif target.error is None:
                groups[target.n_params].append(target)
        for group in groups.values():
            self._read(group, reference_of(group))

    def _read(self, group: Sequence[Contender], reference: Contender) -> None:
        rows = self._results.rows
        read = {row["target"] for row in rows if row["type"] == "quality"}
        compared = {(r["target"], r["draft"]) for r in rows if r["type"] == "agreement"}
        measured = {(r["target"], r["draft"]) for r in rows if r["type"] == "pair"}
        named = {c.path.resolve(): c.label for c in group}
        name = named.get(reference.path.resolve(), reference.label)
        targets = [c for c in group if c.label not in read]
        agreements = []
        for target in group:
            drafts = [
                [draft.label, str(draft.path)]
                for draft in self._plan.drafts
                if (target.label, draft.label) in measured - compared
                and change(rows, "draft", draft) is None
            ]
            if drafts:
                agreements.append([target.label, str(target.path), drafts])
        if not targets and not agreements:
            return
        job = {
            "text": str(self._plan.text) if self._plan.text is not None else None,
            "text_words": self._text_words,
            "n_chunks": self._plan.n_chunks,
            "loading": {k: v for k, v in self._plan.loading.items() if k != "n_ctx"},
            "folder": str(self._results.folder / f"{_RECORDS}{os.getpid()}"),
            "read": sorted(read),
            "reference": [name, str(reference.path)],
            "targets": [[c.label, str(c.path)] for c in targets],
            "agreements": agreements,
        }
        error = self._run(job)
        if error is not None:
            self._on_say(f"quality was not measured: {error}")
            done = {row["target"] for row in self._results.rows if row["type"] == "quality"}
            self._results.append(
                [
                    QualityRow(target=c.label, reference=name, error=error).as_row()
                    for c in targets
                    if c.label not in done
                ]
            )

    def _run(self, job: dict[str, Any]) -> str | None:
        """None when all was read, else why not."""
        with (
            self._no_records_left(),
            contextlib.closing(worker_rows(_WORKER, json.dumps(job))) as rows,
        ):
            for row in rows:
                if row["type"] == "failed":
                    return str(row["error"])
                if row["type"] == "doing":
                    self._on_doing(f"quality: {row['what']} …")
                else:
                    self._results.append([row])
        return None

    @contextlib.contextmanager
    def _no_records_left(self) -> Iterator[None]:
        """Log-probabilities take gigabytes, and a reader that is killed deletes none of its own."""
        try:
            yield
        finally:
            self._delete_records()

    def _delete_records(self) -> None:
        for folder in self._results.folder.glob(f"{_RECORDS}*"):
            shutil.rmtree(folder, ignore_errors=True)


def _text_words(plan: Plan) -> str:
    """Which text, and how much of it: the same words for the same reading."""
    text = read_text(plan.text) if plan.text is not None else built_in()
    piece = "" if plan.n_chunks is None else f", the first {plan.n_chunks} pieces of 512 tokens"
    return f"{text.name} (SHA-256 {text.sha256[:12]}…){piece}"
