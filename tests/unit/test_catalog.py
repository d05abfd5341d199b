"""The catalog that ships is sound, and a damaged one is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import CatalogError, ModelNotFoundError
from localspec.models.catalog import CatalogFile, catalog, parse
from localspec.models.references import locate, pair_draft

PINNED: dict[str, Any] = {"repo": "", "licence": "MIT", "file": "a.gguf", "size_bytes": 1,
                          "sha256": "0" * 64}  # fmt: skip
OTHER = {"repo": "me/b", "licence": "MIT", "quant": "Q8_0"}


def document(**changes: Any) -> dict[str, Any]:
    return {
        "default": "pair",
        "files": {"a": {**PINNED}, "b": {**OTHER}},
        "pairs": {"pair": {"target": "a", "draft": "b"}},
        **changes,
    }


def test_the_default_pair_is_pinned_and_mirrored() -> None:
    pair = catalog().pair("default")
    assert pair is not None
    assert pair.name == "qwen2.5-coder-1.5b"
    for file, size_bytes, n_packages in ((pair.target, 1_117_320_768, 22),
                                         (pair.draft, 491_400_064, 6)):  # fmt: skip
        assert file.size_bytes == size_bytes
        assert len(file.packages) == n_packages
        assert file.packages[0].split("==")[0].endswith("1")
        assert file.packages[-1].split("==")[0].endswith(str(n_packages))


@pytest.mark.parametrize("file", catalog().files.values(), ids=lambda file: file.name)
def test_every_file_says_where_it_is_and_under_which_licence(file: CatalogFile) -> None:
    assert file.licence
    assert file.repo or file.packages
    if file.file is not None:
        assert file.size_bytes
        assert re.fullmatch("[0-9a-f]{64}", file.sha256 or "")


def test_names_stand_for_files() -> None:
    assert locate("default") == catalog().files["qwen2.5-coder-1.5b-q4_k_m"]
    assert locate("default", "draft") == catalog().files["qwen2.5-coder-0.5b-q4_k_m"]
    assert locate("smollm2-135m-q4_1") == catalog().files["smollm2-135m-q4_1"]
    assert pair_draft("default") == pair_draft("qwen2.5-coder-1.5b-q4_k_m")
    assert pair_draft("default") == "qwen2.5-coder-0.5b-q4_k_m"
    assert pair_draft("smollm2-135m-q4_1") is None


def test_a_repository_has_a_default_quant() -> None:
    for reference, quant in (("me/x-GGUF", "Q4_K_M"), ("me/x-GGUF:q8_0", "q8_0")):
        found = locate(reference)
        assert isinstance(found, CatalogFile)
        assert (found.repo, found.quant) == ("me/x-GGUF", quant)


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("Qwen2.5-Coder-1.5", "did you mean qwen2.5-coder-1.5b"),
        ("zzzzzz", "localspec models list"),
        ("no/such/file.gguf", "no file no/such/file.gguf"),
        ("~nobody-by-this-name/x.gguf", "no file"),
        ("../x/y", "no file"),
        ("x" * 5000, "too long"),
        ("a\0b", "NUL"),
    ],
)
def test_an_unknown_name_is_an_error_with_advice(reference: str, hint: str) -> None:
    with pytest.raises(ModelNotFoundError, match=hint):
        locate(reference)


def test_a_file_comes_first_but_a_folder_does_not_hide_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-135m-q4_1").write_bytes(b"GGUF")
    assert locate("smollm2-135m-q4_1") == Path("smollm2-135m-q4_1")
    (tmp_path / "default").mkdir()
    assert isinstance(locate("default"), CatalogFile)
    (tmp_path / "other").mkdir()
    assert locate("other") == Path("other")  # read_header says that it is a folder


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "м.gguf").write_bytes(b"GGUF")
    assert locate("~/м.gguf") == tmp_path / "м.gguf"


def test_a_sound_document_parses() -> None:
    pair = parse(document()).pair("default")
    assert pair is not None
    assert (pair.target.file, pair.draft.quant) == ("a.gguf", "Q8_0")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"default": "nothing"}, "default pair 'nothing'"),
        ({"pairs": {"pair": {"target": "a", "draft": "c"}}}, "unknown file 'c'"),
        ({"pairs": {"pair": {"target": "a"}}}, "lacks the entry 'draft'"),
        ({"files": []}, "wrong entry"),
        ({"files": {"a": {**PINNED, "colour": 1}, "b": OTHER}}, "colour"),
        ({"files": {"a": {**PINNED, "file": "../a.gguf"}, "b": OTHER}}, "plain file name"),
        ({"files": {"a": {**PINNED, "file": "c:a.gguf"}, "b": OTHER}}, "plain file name"),
        ({"files": {"a": {**PINNED, "quant": "Q8_0"}, "b": OTHER}}, "either a file or a quant"),
        ({"files": {"a": {**PINNED, "member": "("}, "b": OTHER}}, "wrong entry"),
        (
            {"files": {"a": {**OTHER, "packages": {"prefix": "p", "count": 1, "version": "1"}}}},
            "not pinned",
        ),
    ],
)
def test_a_damaged_catalog_is_named(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CatalogError, match=complaint):
        parse(document(**changes))
