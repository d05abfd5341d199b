"""Which models could be loaded: the catalog's, and GGUF files that are on this machine.

Reads headers only; nothing is loaded or fetched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.gguf.header import GGUFHeader, read_header
from localspec.gguf.model_kind import LANGUAGE_MODEL, kind_of
from localspec.gguf.parts import part_paths
from localspec.gguf.vocabulary_match import compare_vocabularies
from localspec.models.catalog import CatalogFile, catalog
from localspec.models.hub import cached_gguf_files
from localspec.models.made_levels import levels_folder
from localspec.models.mirror import cache_folder
from localspec.models.references import local_path, locate, pair_draft

__all__ = ["Candidate", "drafts", "missing", "targets"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """reference: what /model or /draft takes. note: what it is. refused: why it does not fit.

    n_bytes: to be downloaded, 0 when it is here, None when unknown.
    """

    reference: str
    note: str
    refused: str | None = None
    n_bytes: int | None = 0


def targets() -> list[Candidate]:
    """Pairs of the catalog, then the files that are here."""
    found = []
    known = catalog()
    for pair in known.pairs.values():
        missing = [file for file in (pair.target, pair.draft) if local_path(file) is None]
        default = ", the default" if pair.name == known.default else ""
        found.append(Candidate(pair.name, f"pair{default}: {pair.note}", n_bytes=_size_of(missing)))
    for path in _local_files():
        with contextlib.suppress(LocalspecError):
            header = read_header(path)
            if kind_of(header) == LANGUAGE_MODEL:
                found.append(Candidate(str(path), _described(header)))
    return found


def drafts(target: Path) -> list[Candidate]:
    """What could draft for this target, those that fit first; each with the reason if not.

    Files that are here, and the drafts of the catalog's pairs.
    """
    try:
        wanted = read_header(target)
    except LocalspecError:
        return []
    found = []
    for path in _local_files():
        if path == target:
            continue
        note, refused = "", None
        try:
            header = read_header(path)
            note = _described(header)
            if kind_of(header) != LANGUAGE_MODEL:
                continue
            if header.total_size_bytes >= wanted.total_size_bytes:
                refused = "not smaller than the target"
            else:
                compare_vocabularies(wanted, header)
        except LocalspecError as error:
            refused = str(error).partition(". ")[0]
        found.append(Candidate(str(path), note, refused))
    small = {pair.draft.name: pair.draft for pair in catalog().pairs.values()}
    for file in small.values():
        if local_path(file) is None:
            note = f"{file.repo}: its vocabulary is checked after the download"
            found.append(Candidate(file.name, note, n_bytes=_size_of([file])))
    return sorted(found, key=lambda candidate: candidate.refused is not None)


def missing(target: str, draft: str | None) -> list[Candidate]:
    """What would be fetched before these can be loaded. Raises ModelNotFoundError."""
    wanted = pair_draft(target) if draft == "auto" else draft
    found = []
    for reference, role in ((target, "target"), (wanted, "draft")):
        file = locate(reference, role) if reference is not None else None
        if isinstance(file, CatalogFile) and local_path(file) is None:
            found.append(Candidate(file.name, file.repo, n_bytes=_size_of([file])))
    return found


def _size_of(files: list[CatalogFile]) -> int | None:
    sizes = [file.size_bytes for file in files]
    return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)


def _local_files() -> Iterator[Path]:
    seen: set[Path] = set()
    made = sorted(levels_folder().glob("*.gguf"))
    for path in [*sorted(cache_folder().glob("*.gguf")), *cached_gguf_files(), *made]:
        real = path.resolve()
        if real not in seen and part_paths(path)[0] == path:
            seen.add(real)
            yield path


def _described(header: GGUFHeader) -> str:
    return f"{header.name}, {header.quant}, {header.total_size_bytes / 1e9:.2f} GB"
