"""Tiny models run on one thread; the fixtures end with the package, so that real models do not.

ggml's threads wait for each other by spinning; beside another busy process two of them are a
thousand times slower than one on work this small.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec import pair
from localspec.library import measured_costs
from localspec.llama import vetting


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair, "physical_cores", lambda: 1)
        yield


@pytest.fixture(scope="package", autouse=True)
def own_costs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Costs of models that live for a minute do not belong into the user's cache."""
    folder = tmp_path_factory.mktemp("costs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_costs, "costs_folder", lambda: folder)
        yield folder


@pytest.fixture(scope="package", autouse=True)
def no_trials() -> Iterator[None]:
    """The tiny models are sound; a process for each of them would take half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vetting, "probe", lambda path, size_bytes: None)
        yield
