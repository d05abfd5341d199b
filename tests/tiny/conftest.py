"""Tiny models run on one thread.

ggml's threads wait for each other by spinning; beside another busy process two of them are a
thousand times slower than one on work this small.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localspec import pair


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair, "physical_cores", lambda: 1)
        yield
