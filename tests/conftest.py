"""Fixtures: a tiny pair for every test, the default pair for those marked `real`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.session import Session
from tests import tiny_models


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="session")
def tiny_target(tiny_dir: Path) -> Path:
    """A clear margin between the best two tokens, so that greedy text does not hang on rounding."""
    path = tiny_dir / "target.gguf"
    tiny_models.write_llama(path, vocab="bytes", name="tiny-target")
    return path


@pytest.fixture(scope="session")
def tiny_draft(tiny_dir: Path) -> Path:
    """The target with noise on its weights: right now and then."""
    path = tiny_dir / "draft.gguf"
    tiny_models.write_llama(path, vocab="bytes", noise=0.3, name="tiny-draft")
    return path


@pytest.fixture(scope="module")
def pair(tiny_target: Path, tiny_draft: Path) -> Iterator[Session]:
    with Session(tiny_target, tiny_draft) as session:
        yield session


@pytest.fixture(scope="session")
def real_pair() -> tuple[Path, Path]:
    """The default pair, fetched on first use; a machine that cannot have it skips, and says so."""
    from localspec.errors import DownloadError
    from localspec.library.references import resolve

    try:
        return resolve("default", role="target"), resolve("default", role="draft")
    except DownloadError as error:
        pytest.skip(f"the default pair cannot be had: {error}")
