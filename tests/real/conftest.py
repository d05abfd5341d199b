"""The default pair is loaded once for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.session.options import LoadOptions
from localspec.session.session import Session


@pytest.fixture(scope="package")
def session(real_pair: tuple[Path, Path]) -> Iterator[Session]:
    with Session(*real_pair, LoadOptions(n_ctx=2048)) as loaded:
        yield loaded
