"""X. Split GGUF.

- Listing picks part 2 as the model: below.
- Only the first part was fetched: below; all parts of a repository's quant level are fetched in
  order (tests/unit/test_fetch.py, test_the_files_of_a_quant_level), and an interrupted fetch is not
  taken for a whole one (localspec.models.hub.cached_quant).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localspec.chat.model_choices import targets
from localspec.errors import ModelFileError, ModelNotFoundError
from localspec.models.hub import cached_gguf_files
from localspec.session.session import Session
from tests.split_model import split


@pytest.fixture(scope="module")
def parts(tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return split(tiny_target, tmp_path_factory.mktemp("split"), 3)


def text_of(path: Path) -> tuple[int, ...]:
    with Session(path) as session:
        return session.complete([1, 270, 271], max_tokens=12, temperature=0).token_ids


def test_every_part_stands_for_the_model(parts: list[Path], tiny_target: Path) -> None:
    assert {text_of(path) for path in parts} == {text_of(tiny_target)}


def test_a_listing_has_one_entry_and_it_is_part_1(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    snapshot = tmp_path / "hub" / "models--a--b" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    own = tmp_path / "own"
    own.mkdir()
    for part in reversed(parts):
        for folder in (snapshot, own):
            (folder / part.name).write_bytes(part.read_bytes())
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("LOCALSPEC_CACHE", str(own))
    assert [path.name for path in cached_gguf_files()] == [parts[0].name]
    listed = [c.reference for c in targets() if c.reference.endswith(".gguf")]
    assert sorted(Path(path).name for path in listed) == [parts[0].name] * 2


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_part_is_named_before_the_load(
    parts: list[Path], tmp_path: Path, missing: int
) -> None:
    for no, part in enumerate(parts):
        if no != missing:
            (tmp_path / part.name).write_bytes(part.read_bytes())
    given = tmp_path / parts[(missing + 1) % 3].name
    with pytest.raises(
        ModelNotFoundError, match=rf"1 are missing .*{re.escape(parts[missing].name)}"
    ):
        Session(given)


def test_parts_in_each_others_place_are_named(parts: list[Path], tmp_path: Path) -> None:
    for part, name in zip(parts, (parts[0].name, parts[2].name, parts[1].name), strict=True):
        (tmp_path / name).write_bytes(part.read_bytes())
    with pytest.raises(ModelFileError, match=r"says it is part 2 \(from 0\) of 3"):
        Session(tmp_path / parts[0].name)


def test_a_tensor_that_two_parts_hold_is_named(parts: list[Path], tmp_path: Path) -> None:
    from tests.gguf_edit import edit

    for part in parts:
        (tmp_path / part.name).write_bytes(part.read_bytes())
    edit(tmp_path / parts[1].name, "tensor", b"blk.0.attn_k.weight", nth=1)
    with pytest.raises(ModelFileError, match=r"'blk\.0\.attn_k\.weight' is in two of the 3"):
        Session(tmp_path / parts[0].name)
