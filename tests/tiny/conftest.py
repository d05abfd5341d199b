"""Tiny models run on one thread; the fixtures end with the package, so that real models do not.

ggml's threads wait for each other by spinning; beside another busy process two of them are a
thousand times slower than one on work this small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localspec.cli.main import main
from localspec.llama import probe as vetting
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.models import stored_costs as measured_costs
from localspec.session import pair
from tests import tiny_models


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


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`localspec` in this process, which is much quicker: exit code, stdout, stderr."""

    def called(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = 0
        try:
            main(list(map(str, args)))
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    return called


@pytest.fixture(scope="module")
def contexts(tiny_dir: Path) -> Iterator[tuple[Context, Context]]:
    """Target and draft over the small vocabulary, whose laws can be written out."""
    paths = [tiny_dir / "law-target.gguf", tiny_dir / "law-draft.gguf"]
    tiny_models.write_llama(paths[0])
    tiny_models.write_llama(paths[1], noise=0.1)
    with Model(paths[0]) as target_model, Model(paths[1]) as draft_model:
        target = Context(target_model, n_ctx=256, n_threads=1)
        draft = Context(draft_model, n_ctx=256, n_threads=1, max_rows=1)
        yield target, draft
        draft.close()
        target.close()
