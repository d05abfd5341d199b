"""Two vocabularies match when the same id means the same text."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import VocabularyMismatchError
from localspec.gguf.header import GGUFHeader
from localspec.gguf.vocabulary_match import VocabularyMatch, compare_vocabularies


def vocabulary(texts: list[str], name: str = "a model") -> GGUFHeader:
    spelled = [text.encode() for text in texts]
    return GGUFHeader(
        path=Path(f"{name}.gguf"),
        version=3,
        size_bytes=0,
        metadata={"general.name": name, "tokenizer.ggml.model": "gpt2"},
        tensors=(),
        parts=(),
        token_bytes=b"".join(len(text).to_bytes(8, "little") + text for text in spelled),
        n_vocab=len(texts),
    )


WORDS = [f"word{i}" for i in range(5000)]


def test_equal_vocabularies_match() -> None:
    same = compare_vocabularies(vocabulary(WORDS), vocabulary(WORDS))
    assert same == VocabularyMatch(5000, frozenset())


def test_padding_rows_do_not_matter() -> None:
    padded = vocabulary([*WORDS, *(f"[PAD{i}]" for i in range(128))])
    assert compare_vocabularies(padded, vocabulary(WORDS)) == VocabularyMatch(5000, frozenset())
    assert compare_vocabularies(vocabulary(WORDS), padded) == VocabularyMatch(5000, frozenset())


def test_a_few_differing_ids_are_returned() -> None:
    altered = [*WORDS]
    altered[7], altered[4999] = "<unused0>", "<unused1>"
    match = compare_vocabularies(vocabulary(WORDS), vocabulary(altered))
    assert match == VocabularyMatch(5000, frozenset({7, 4999}))


def test_the_limit_is_one_id_in_a_thousand() -> None:
    def altered(n: int) -> GGUFHeader:
        return vocabulary([f"other{i}" if i < n else word for i, word in enumerate(WORDS)])

    assert len(compare_vocabularies(vocabulary(WORDS), altered(5)).differing_ids) == 5
    with pytest.raises(VocabularyMismatchError, match="6 ids differ"):
        compare_vocabularies(vocabulary(WORDS), altered(6))


def test_a_refusal_names_both_and_the_first_differing_id() -> None:
    target = vocabulary(WORDS, "Big")
    draft = vocabulary([WORDS[0], *(f"x{i}" for i in range(1999))], "Small")
    with pytest.raises(VocabularyMismatchError) as caught:
        compare_vocabularies(target, draft)
    text = str(caught.value)
    assert "target Big (Big.gguf, tokenizer gpt2, 5,000 tokens)" in text
    assert "draft Small (Small.gguf, tokenizer gpt2, 2,000 tokens)" in text
    assert "1,999 ids differ, the first is 1: 'word1' and 'x0'" in text
    assert "`--draft none`" in text
    assert "`--drafter ngram`" in text


def test_a_much_longer_vocabulary_is_refused_though_its_start_agrees() -> None:
    with pytest.raises(VocabularyMismatchError, match="lengths differ too much"):
        compare_vocabularies(vocabulary(WORDS), vocabulary(WORDS[:4000]))


def test_text_that_is_not_utf8_can_be_shown() -> None:
    broken = vocabulary(["a"] * 3000)
    raw = (1).to_bytes(8, "little") + b"\xff"
    other = GGUFHeader(Path("b.gguf"), 3, 0, {}, (), (), raw * 3000, 3000)
    with pytest.raises(VocabularyMismatchError, match="'a' and '\ufffd'"):
        compare_vocabularies(broken, other)
