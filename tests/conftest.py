"""Fixtures: a tiny pair for every test, the default pair for those marked `real`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.session.session import Session
from tests import tiny_models, workers


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many `-n auto` starts."""
    return workers.count()


def pytest_configure(config: pytest.Config) -> None:
    """A worker of pytest-xdist takes its core before anything counts cores."""
    given = getattr(config, "workerinput", None)
    if given is not None:
        workers.pin(int(given["workerid"].removeprefix("gw")))


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """A run in a shell's background ignores Ctrl-C, and so would every program that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the chats and settings of the person who runs it."""
    monkeypatch.setenv("LOCALSPEC_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(tmp_path / "no-config.toml"))


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="session")
def tiny_target(tiny_dir: Path) -> Path:
    """A wide margin between the best two tokens, so that greedy text does not hang on rounding."""
    path = tiny_dir / "target.gguf"
    return tiny_models.write_llama(path, vocab="bytes", cycle=True, name="tiny-target")


@pytest.fixture(scope="session")
def tiny_draft(tiny_dir: Path) -> Path:
    """The target with nine tokens after which it guesses wrong."""
    path = tiny_dir / "draft.gguf"
    return tiny_models.write_llama(
        path, vocab="bytes", cycle=True, cycle_breaks=9, name="tiny-draft"
    )


@pytest.fixture(scope="module")
def loose_pair(tiny_dir: Path) -> Iterator[Session]:
    """Many likely tokens at every position, and a draft with noise on its weights."""
    target = tiny_models.write_llama(tiny_dir / "loose.gguf", vocab="bytes")
    draft = tiny_models.write_llama(tiny_dir / "loose-draft.gguf", vocab="bytes", noise=0.1)
    with Session(target, draft) as session:
        yield session


@pytest.fixture(scope="module")
def ending_pair(tiny_dir: Path) -> Iterator[Session]:
    """As loose, and the answers end by themselves."""
    target = tiny_models.write_llama(tiny_dir / "ending.gguf", vocab="bytes", ends=True)
    draft = tiny_models.write_llama(
        tiny_dir / "ending-draft.gguf", vocab="bytes", noise=0.1, ends=True
    )
    with Session(target, draft) as session:
        yield session


@pytest.fixture(scope="module")
def pair(tiny_target: Path, tiny_draft: Path) -> Iterator[Session]:
    with Session(tiny_target, tiny_draft) as session:
        yield session


@pytest.fixture(scope="session")
def real_pair() -> tuple[Path, Path]:
    """The default pair, fetched on first use; a machine that cannot have it skips, and says so."""
    from localspec.errors import DownloadError
    from localspec.models.references import resolve

    try:
        return resolve("default", role="target"), resolve("default", role="draft")
    except DownloadError as error:
        pytest.skip(f"the default pair cannot be had: {error}")
