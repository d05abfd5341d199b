"""Forks and saved states: what comes after is what a cold run would say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import localspec
from localspec.errors import DiskSpaceError, StateFileError
from localspec.session import saved_state as state_file
from localspec.session.session import Session
from tests import tiny_models

PROMPT = "the and of in is he the and of in"
OPTIONS: dict[str, Any] = {"temperature": 1.0, "seed": 5, "max_tokens": 20, "n_draft": 3}


def test_forks_say_what_cold_runs_say(loose_pair: Session) -> None:
    trunk = loose_pair.branch(PROMPT)
    trunk.complete(**OPTIONS)
    left, right = trunk.fork().append(" the"), trunk.fork().append(" in")
    answers = []
    for branch in (left, right, left, right):  # to and fro
        before = branch.ids
        result = branch.complete(**OPTIONS)
        assert branch.ids == (*before, *result.token_ids)
        answers.append((before, result))
    assert left.ids != right.ids
    assert trunk.ids == left.ids[: len(trunk.ids)] == right.ids[: len(trunk.ids)]
    assert answers[1][1].stats.cache_n >= len(trunk.ids) - 1, "the prefix was evaluated anew"
    for ids, result in answers:
        loose_pair.clear_cache()
        assert loose_pair.complete(list(ids), **OPTIONS).token_ids == result.token_ids


def test_a_branch_shows_its_text(loose_pair: Session) -> None:
    branch = loose_pair.branch("the and")
    assert branch.text == "the and"
    branch.append(" of").append([loose_pair.encode("x")[-1]])
    assert branch.text.startswith("the and of")
    assert "tokens" in repr(branch)
    assert branch.fork().ids == branch.ids


@pytest.fixture
def saved(loose_pair: Session, tmp_path: Path) -> Path:
    loose_pair.clear_cache()
    loose_pair.complete(PROMPT, **OPTIONS)
    path = tmp_path / "some.state"
    loose_pair.save_state(path)
    return path


def test_after_restoring_the_answer_is_the_cold_runs(loose_pair: Session, saved: Path) -> None:
    loose_pair.clear_cache()
    cold = loose_pair.complete(PROMPT, **OPTIONS)
    ids = [*loose_pair.encode(PROMPT), *cold.token_ids]
    longer = [*ids, 270, 271]
    expected = loose_pair.complete(longer, **OPTIONS)
    loose_pair.clear_cache()
    assert loose_pair.restore_state(saved) == tuple(ids[:-1])
    restored = loose_pair.complete(longer, **OPTIONS)
    assert restored.token_ids == expected.token_ids
    assert restored.stats.cache_n == len(ids) - 1
    assert restored.rounds[0].tokens[0].p == expected.rounds[0].tokens[0].p  # to the bit
    assert loose_pair._draft is not None
    assert loose_pair._draft.ids  # the draft model has its part back


def test_another_process_can_restore_it(loose_pair: Session, saved: Path, tiny_dir: Path) -> None:
    expected = loose_pair.complete(PROMPT, **OPTIONS)
    with localspec.load(tiny_dir / "loose.gguf", tiny_dir / "loose-draft.gguf") as other:
        other.restore_state(saved)
        assert other.complete(PROMPT, **OPTIONS).token_ids == expected.token_ids
    with localspec.load(tiny_dir / "loose.gguf") as alone:  # without the draft model
        alone.restore_state(saved)
        result = alone.complete(PROMPT, **{**OPTIONS, "drafter": "none", "n_draft": None})
        assert result.token_ids == expected.token_ids
        assert result.stats.cache_n > 0


@pytest.mark.parametrize("at", ["magic", "checksum", "header", "middle", "end"])
@pytest.mark.parametrize("how", ["flip", "cut"])
def test_a_damaged_file_is_a_named_error(
    loose_pair: Session, saved: Path, at: str, how: str
) -> None:
    raw = bytearray(saved.read_bytes())
    where = {
        "magic": 3, "checksum": 20, "header": 90, "middle": len(raw) // 2, "end": len(raw) - 1,
    }[at]  # fmt: skip
    if how == "flip":
        raw[where] ^= 0x10
    else:
        del raw[where:]
    saved.write_bytes(raw)
    with pytest.raises(StateFileError, match=r"damaged|no saved state|another version"):
        loose_pair.restore_state(saved)
    assert loose_pair.complete(PROMPT, **OPTIONS).stats.predicted_n == 20


@pytest.mark.parametrize("content", [b"", b"hello", b"localspec state 9\n" + bytes(100)])
def test_a_foreign_file_is_a_named_error(
    loose_pair: Session, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(StateFileError, match=r"no saved state|another version"):
        loose_pair.restore_state(path)
    with pytest.raises(StateFileError, match="cannot be read"):
        loose_pair.restore_state(tmp_path / "missing")
    with pytest.raises(StateFileError, match="cannot be written"):
        loose_pair.save_state(tmp_path / "no" / "folder")


def test_the_state_of_another_model_or_cache_is_refused(
    loose_pair: Session, saved: Path, tiny_target: Path, tiny_dir: Path
) -> None:
    with (
        localspec.load(tiny_target) as other,
        pytest.raises(StateFileError, match=r"target: .*loose.gguf.* then, .*target.gguf.* now"),
    ):
        other.restore_state(saved)
    with (
        localspec.load(tiny_dir / "loose.gguf", type_k="bf16", type_v="bf16") as other,
        pytest.raises(StateFileError, match="type_k: 'f16' then, 'bf16' now"),
    ):
        other.restore_state(saved)


def test_a_state_longer_than_the_context_is_refused(
    loose_pair: Session, tiny_dir: Path, tmp_path: Path
) -> None:
    loose_pair.complete([5] * 400, temperature=0, max_tokens=2)
    loose_pair.save_state(tmp_path / "long")
    with (
        localspec.load(tiny_dir / "loose.gguf", n_ctx=256) as small,
        pytest.raises(StateFileError, match="401 tokens, but this context has 256"),
    ):
        small.restore_state(tmp_path / "long")


def test_an_empty_state_is_a_state(loose_pair: Session, tmp_path: Path) -> None:
    loose_pair.clear_cache()
    loose_pair.save_state(tmp_path / "empty")
    loose_pair.complete(PROMPT, **OPTIONS)
    assert loose_pair.restore_state(tmp_path / "empty") == ()
    assert loose_pair.complete(PROMPT, **OPTIONS).stats.cache_n == 0


def test_recurrent_memory_is_saved_too(tmp_path: Path) -> None:
    mamba = tmp_path / "mamba.gguf"
    tiny_models.write_mamba(mamba, vocab="bytes")
    options = {"temperature": 0.0, "max_tokens": 10}
    with localspec.load(mamba) as session:
        branch = session.branch(PROMPT)
        branch.complete(**options)
        session.save_state(tmp_path / "state")
        expected = session.complete(list(branch.ids), **options)
        session.clear_cache()
        session.restore_state(tmp_path / "state")
        restored = session.complete(list(branch.ids), **options)
    assert restored.token_ids == expected.token_ids
    assert restored.stats.cache_n > 0


def test_a_full_disk_leaves_the_old_file(
    loose_pair: Session, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_file.os, "fsync", full)
    with pytest.raises(DiskSpaceError, match="MB, and the disk"):
        loose_pair.save_state(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("place", ["made_by", "load", "role", "ids", "n_bytes"])
def test_a_header_that_was_edited_is_a_named_error(
    place: str, loose_pair: Session, saved: Path
) -> None:
    """Also where the checksum was made anew."""
    made_by, parts = state_file.read_state_file(saved)
    header: dict[str, Any] = {
        "made_by": made_by,
        "parts": [{"role": p.role, "ids": p.ids, "start": p.start, "n_bytes": 9} for p in parts],
    }
    where = {"made_by": header, "load": header["made_by"]}.get(place, header["parts"][0])
    where[place] = "x" if place != "role" else []
    raw = json.dumps(header).encode()
    body = len(raw).to_bytes(8, "little") + raw
    saved.write_bytes(b"localspec state 1\n" + hashlib.sha256(body).digest() + body)
    with pytest.raises(StateFileError):
        loose_pair.restore_state(saved)
