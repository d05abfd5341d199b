"""M. UTF-8 and spaces in streaming."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import localspec
from localspec.decoding.answer import TextRelease
from localspec.decoding.events import Finished, Round
from localspec.session.session import Session
from tests import tiny_models
from tests.cases.proof import shown_by

TEXTS = [
    "👨‍👩‍👧‍👦 🇮🇹🇯🇵 🏳️‍🌈",  # families and flags: many code points each
    "漢字かな混じり文、한글과 조합",
    "Сказка о рыбаке и рыбке",  # two-byte letters
    '{"a": 1}',
    " leading and trailing ",
    "é\u0301 \u200b zero-width",
]


@pytest.fixture(scope="module")
def speller(tiny_dir: Path) -> Iterator[Session]:
    """Every byte is a token, so that any text can be steered into an answer."""
    path = tiny_models.write_llama(tiny_dir / "speller.gguf", vocab="bytes")
    with localspec.load(path) as session:
        yield session


def byte_ids(text: str) -> list[int]:
    return [tiny_models.FIRST_BYTE + byte for byte in text.encode()]


class Says:
    """Makes the target say these tokens by a bias, one place after the other."""

    def __init__(self, session: Session, ids: list[int], n_prompt: int) -> None:
        self.ids, self.n_prompt = ids, n_prompt
        self.context = session._target
        self.decode = session._target.decode

    def __call__(self, batch: list[int], *, n_rows: int) -> list[object]:
        rows = [row.copy() for row in self.decode(batch, n_rows=n_rows)]
        for i, row in enumerate(rows):
            at = len(self.context.ids) - n_rows + i + 1 - self.n_prompt
            row[self.ids[at] if at < len(self.ids) else tiny_models.EOS] = 1e4
        return rows


class Guesses:
    """Drafts what will be said, so that blocks end within characters."""

    def __init__(self, ids: list[int], n_prompt: int) -> None:
        self.ids, self.n_prompt = ids, n_prompt

    def guess(self, ids: object, n_max: int) -> list[int]:
        return self.ids[len(ids) - self.n_prompt :]  # type: ignore[arg-type]


def answer(
    session: Session, said: list[int], n_draft: int, patch: pytest.MonkeyPatch, n_stop: int = 10**6
) -> tuple[str, str]:
    """(the pieces of the stream, the whole text)"""
    prompt = session.encode("ab")
    session.clear_cache()
    patch.setattr(session._target, "decode", Says(session, said, len(prompt)))
    shown = ""
    events = session.stream(
        prompt, temperature=0, n_draft=n_draft, drafter=Guesses(said, len(prompt))
    )
    for n, event in enumerate(events):
        if isinstance(event, Round):
            shown += event.text
        if isinstance(event, Finished):
            return shown, event.text
        if n >= n_stop:
            session.cancel()
    raise AssertionError


@pytest.mark.parametrize("n_draft", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("text", TEXTS)
def test_emoji_cjk_hangul_and_two_byte_letters_stream_whole(
    speller: Session, text: str, n_draft: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream equals the one-shot decode, across tokens and across blocks; nothing is lost at
    the start of the answer or at a block's join, a first `{"` or space least of all.
    """
    shown, whole = answer(speller, byte_ids(text), n_draft, monkeypatch)
    assert shown == whole == text


@pytest.mark.parametrize("n_missing", [1, 2, 3])
def test_lone_bytes_become_one_replacement_mark_at_the_end_only(
    speller: Session, n_missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = byte_ids("ok 👍")[:-n_missing]
    release = TextRelease(())
    pieces = [release.push(speller._target.model.vocabulary.piece(token)) for token in said]
    assert "".join(pieces) == "ok "
    assert release.flush() == "\ufffd"


def test_stopping_in_the_middle_of_a_character_loses_no_other(
    speller: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "日本語" * 5
    shown, whole = answer(speller, byte_ids(text), 0, monkeypatch, n_stop=8)
    assert shown == whole
    assert text.startswith(whole.rstrip("\ufffd"))
    assert whole.count("\ufffd") <= 1


def test_byte_tokens_of_a_four_byte_emoji() -> None:
    """SmolLM2 spells one so; the incremental decoder is the same for every vocabulary."""
    release = TextRelease(())
    assert [release.push(bytes([byte])) for byte in "🙂".encode()] == ["", "", "", "🙂"]


def test_history_keeps_ids_not_the_patched_text(
    speller: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes on is the ids: a replacement mark is never tokenised again."""
    said = byte_ids("👍")[:2]
    prompt = speller.encode("ab")
    monkeypatch.setattr(speller._target, "decode", Says(speller, said, len(prompt)))
    result = speller.complete(prompt, temperature=0, drafter="none")
    assert result.token_ids == tuple(said)
    assert result.text == "\ufffd"
    branch = speller.branch(prompt)
    branch.complete(temperature=0, drafter="none")
    assert branch.ids == (*prompt, *said)


def test_the_asynchronous_stream_is_the_same(
    speller: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXTS[0]
    prompt = speller.encode("ab")
    speller.clear_cache()
    monkeypatch.setattr(speller._target, "decode", Says(speller, byte_ids(text), len(prompt)))

    async def read() -> str:
        events = speller.astream(prompt, temperature=0, drafter="none")
        return "".join([event.text async for event in events if isinstance(event, Round)])

    assert asyncio.run(read()) == text


def test_shown_elsewhere() -> None:
    shown_by(
        "tiny.test_text.test_characters_split_over_tokens_stream_whole",
        "tiny.test_text.test_half_a_character_at_the_end_is_one_replacement_mark",
        "tiny.test_text.test_release_holds_the_longest_possible_stop",
    )
