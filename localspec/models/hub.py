"""Files from the Hugging Face hub, through huggingface_hub and the cache it shares with others.

Tokens, resuming and the cache layout are the library's own business.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
from inspect import signature
from pathlib import Path
from typing import Any

from localspec.errors import DownloadError, ModelNotFoundError
from localspec.gguf.parts import part_paths
from localspec.models.mirror import Progress, require_space

__all__ = ["HubUnreachableError", "cached_file", "cached_gguf_files", "fetch_file", "pick_files"]

_PROBE_S = 8.0
_RANGE_REFUSED = 416  # HTTP: what is to be resumed is longer than the file
_DISK_TROUBLE = (errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS)
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


class HubUnreachableError(DownloadError):
    """No answer from the hub; another source may do."""


def cached_file(repo: str, file: str, revision: str | None = None) -> Path | None:
    """The file in the shared cache, without any network."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repo, file, revision=revision)
    return Path(found) if isinstance(found, str) else None


def cached_quant(repo: str, quant: str) -> Path | None:
    """A file of that quant level in the shared cache, without any network."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "snapshots"
    for snapshot in sorted(folder.glob("*"), reverse=True):
        names = [str(path.relative_to(snapshot)) for path in snapshot.rglob("*.gguf")]
        picked = _match(names, quant)
        if picked:
            parts = part_paths(snapshot / picked[0])
            if all(part.exists() for part in parts):  # an interrupted fetch leaves some
                return parts[0]
    return None


def cached_gguf_files() -> list[Path]:
    """Every GGUF of the shared cache, of a split one its first part, without any network."""
    from huggingface_hub import constants

    found = []
    for path in Path(constants.HF_HUB_CACHE).glob("models--*/snapshots/*/**/*.gguf"):
        split = _SPLIT.search(path.name)
        if path.exists() and (split is None or int(split[1]) == 1):
            found.append(path)
    return sorted(found)


def offline() -> bool:
    """True when HF_HUB_OFFLINE forbids the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def pick_files(repo: str, quant: str) -> list[str]:
    """The files of one quant level in a repository, all parts of a split model in order.

    Raises HubUnreachableError, ModelNotFoundError, DownloadError.
    """
    names = [sibling.rfilename for sibling in _listing(repo).siblings or []]
    picked = _match(names, quant)
    if not picked:
        levels = sorted(name for name in names if name.lower().endswith(".gguf"))
        raise ModelNotFoundError(
            f"{repo} has no GGUF file of {quant}. It has: {', '.join(levels[:12]) or 'none'}"
        )
    return picked


def fetch_file(
    repo: str,
    file: str,
    *,
    revision: str | None = None,
    sha256: str | None = None,
    size_bytes: int | None = None,
    on_progress: Progress | None = None,
) -> Path:
    """Download one file into the shared cache; checks the pinned SHA-256 after a download.

    on_progress(label, done, total) in bytes, in place of the hub library's own bar, where its
    version can be asked for that.
    """
    found = cached_file(repo, file, revision)
    if found is not None:
        return found
    listing = _listing(repo)
    sizes = {sibling.rfilename: sibling.size for sibling in listing.siblings or []}
    from huggingface_hub import constants, hf_hub_download

    cache = Path(constants.HF_HUB_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    require_space(cache, size_bytes or sizes.get(file) or 0, file)
    more: dict[str, Any] = {"revision": revision}
    if on_progress is not None and "tqdm_class" in signature(hf_hub_download).parameters:
        more["tqdm_class"] = _reporting(Path(file).name, on_progress)
    try:
        try:
            path = Path(hf_hub_download(repo, file, **more))
        except Exception as error:
            if _status(error) != _RANGE_REFUSED or not _drop_incomplete(cache, repo):
                raise
            path = Path(hf_hub_download(repo, file, **more))
    except Exception as error:
        raise _named(error, repo, file) from None
    if sha256 is not None and _sha256(path) != sha256:
        path.resolve().unlink(missing_ok=True)
        raise DownloadError(
            f"{file} from {repo} is not the file that was pinned (SHA-256 differs) and was "
            "removed: try again, or give a path"
        )
    return path


def _status(error: Exception) -> int | None:
    """The HTTP status of an answer, None for any other failure."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _drop_incomplete(cache: Path, repo: str) -> bool:
    """Delete what an earlier fetch left half done, larger than the file; True if there was any."""
    folder = cache / f"models--{repo.replace('/', '--')}" / "blobs"
    found = list(folder.glob("*.incomplete"))
    for leftover in found:
        leftover.unlink(missing_ok=True)
    return bool(found)


def _reporting(label: str, on_progress: Progress) -> Any:
    """A bar for the hub's library that draws nothing and reports bytes."""
    from tqdm import tqdm

    class Reporting(tqdm):  # type: ignore[misc,unused-ignore]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "mininterval": 0.1, "file": io.StringIO()})

        def display(self, msg: str | None = None, pos: int | None = None) -> bool:
            on_progress(label, int(self.n), int(self.total or 0))
            return True

        def close(self) -> None:
            self.disable = True

    return Reporting


def _listing(repo: str) -> Any:
    """The repository's files. Answers at once where there is no network: it is tried once."""
    if offline():
        raise HubUnreachableError("HF_HUB_OFFLINE is set")
    from huggingface_hub import HfApi

    try:
        return HfApi().model_info(repo, timeout=_PROBE_S, files_metadata=True)
    except Exception as error:
        raise _named(error, repo, None) from None


def _named(error: Exception, repo: str, file: str | None) -> DownloadError | ModelNotFoundError:
    from huggingface_hub import constants, errors

    page = f"https://huggingface.co/{repo}"
    if isinstance(error, errors.GatedRepoError):
        return DownloadError(
            f"{repo} is gated: accept its licence on {page}, then log in with `hf auth login`"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFoundError(
            f"there is no repository {repo}, or it is private: check the name, or log in with "
            "`hf auth login`"
        )
    if isinstance(error, errors.HfHubHTTPError):
        return DownloadError(f"the hub refused {repo}: {str(error).splitlines()[0]}")
    if isinstance(error, OSError) and error.errno in _DISK_TROUBLE:
        return DownloadError(
            f"the hub's cache folder {constants.HF_HUB_CACHE} cannot be written "
            f"({error.strerror}): make room, or set HF_HOME to another folder"
        )
    what = f"{file} of {repo}" if file else repo
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return HubUnreachableError(f"the hub did not answer for {what} ({reason})")


def _match(names: list[str], quant: str) -> list[str]:
    level = re.compile(rf"(^|[-._/]){re.escape(quant)}([-._/]|$)", re.IGNORECASE)
    fitting = sorted(
        name
        for name in names
        if name.lower().endswith(".gguf") and "mmproj" not in name.lower() and level.search(name)
    )
    whole = [name for name in fitting if not _SPLIT.search(name)]
    if whole:
        return whole[:1]
    if not fitting:
        return []
    first = fitting[0]
    stem = _SPLIT.sub("", first)
    return [name for name in fitting if _SPLIT.sub("", name) == stem]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()
