"""AA. Downloads, hub, offline.

- An interrupted fetch: nothing promises resuming, and never half a file under the final name
  (tests/unit/test_fetch.py, test_what_a_killed_fetch_left_is_cleared,
  test_other_bytes_than_the_pinned_ones_are_not_kept; the hub's library renames when it is done).
- A stale .incomplete file and HTTP 416: below.
- A gated repository: below; the page to accept the licence on is in
  tests/unit/test_fetch.py, test_a_refusal_of_the_hub_says_what_to_do.
- Air-gapped: tests/unit/test_fetch.py, test_a_file_in_the_hubs_cache_needs_no_network,
  test_offline_nothing_is_fetched_and_the_file_is_named; without the flag the hub is asked once,
  with a time limit (localspec.models.hub._listing).
- Windows without the symlink right: the hub's library copies; below, so that a version that does
  not is seen.
- Progress bars inside the chat: tests/unit/test_fetch.py, test_the_hubs_progress_is_reported; no
  bar where stderr is no terminal (localspec.cli.loading.fetch).
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, NoReturn

import pytest

from localspec.errors import DownloadError
from localspec.models import hub


class _Listing:
    siblings: tuple[Any, ...] = ()


class _HTTPError(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__(f"{status_code} Requested Range Not Satisfiable")
        self.response = type("Response", (), {"status_code": status_code})()


@pytest.fixture
def blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache folder of one repository, with a leftover in it."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "_listing", lambda repo: _Listing())
    monkeypatch.setattr(hub, "cached_file", lambda *_: None)
    folder = tmp_path / "models--me--x" / "blobs"
    folder.mkdir(parents=True)
    (folder / "abc.incomplete").write_bytes(b"too long")
    return folder


def test_a_stale_leftover_is_dropped_and_the_fetch_tried_once_more(
    blobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    tries: list[bool] = []

    def download(repo: str, file: str, **_: object) -> str:
        tries.append((blobs / "abc.incomplete").exists())
        if tries[-1]:
            raise _HTTPError(416)
        return str(blobs / "done")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert hub.fetch_file("me/x", "m.gguf") == blobs / "done"
    assert tries == [True, False]


def test_a_range_that_is_refused_without_a_leftover_is_an_error(
    blobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    (blobs / "abc.incomplete").unlink()
    tries: list[str] = []

    def download(repo: str, file: str, **_: object) -> NoReturn:
        tries.append(file)
        raise _HTTPError(416)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(DownloadError, match="416"):
        hub.fetch_file("me/x", "m.gguf")
    assert len(tries) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_does_not_print_the_token(
    blobs: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    import huggingface_hub

    secret = "hf_" + "x" * 30
    monkeypatch.setenv("HF_TOKEN", secret)

    def download(*_: object, **__: object) -> NoReturn:
        raise _HTTPError(status)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(DownloadError) as caught:
        hub.fetch_file("me/x", "m.gguf")
    assert str(status) in str(caught.value)
    assert secret not in str(caught.value)


def test_without_symlinks_the_hubs_library_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    from huggingface_hub import file_download

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EINVAL, "a required privilege is not held by the client")

    blob, pointer = tmp_path / "blobs" / "b", tmp_path / "snapshots" / "m.gguf"
    blob.parent.mkdir()
    pointer.parent.mkdir()
    blob.write_bytes(b"bytes")
    monkeypatch.setattr(os, "symlink", refuse)
    monkeypatch.setenv("HF_HUB_DISABLE_SYMLINKS_WARNING", "1")
    monkeypatch.setattr(file_download.constants, "HF_HUB_DISABLE_SYMLINKS_WARNING", True)
    file_download._create_symlink(str(blob), str(pointer), new_blob=True)
    assert pointer.read_bytes() == b"bytes"
