"""D. Vocabularies and special tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import VocabularyMismatchError
from localspec.session.session import Session
from tests import tiny_models
from tests.cases.proof import shown_by
from tests.tiny.truth import Truth, write
from tests.tiny_models import IM_END

PROMPT = [1, 270, 280]
N_REAL = 60


def _answer(target: Path, draft: Path, drafter: str = "model") -> tuple[tuple[int, ...], float]:
    truth = Truth(target)
    with Session(target, draft) as session:
        got = session.complete(
            PROMPT, drafter=drafter, n_draft=4, temperature=0.0, max_tokens=N_REAL
        )
    truth.check(PROMPT, got.token_ids, temperature=0.0, max_tokens=N_REAL)
    truth.session.close()
    judged = got.stats.draft_n_accepted + got.stats.draft_n_rejected
    return got.token_ids, got.stats.draft_n_accepted / max(1, judged)


@pytest.mark.parametrize("longer", ["target", "draft"])
def test_rows_of_another_length(tiny_dir: Path, longer: str) -> None:
    """128 padding rows more in one of the two: no crash, and the same weights still agree."""
    plain, padded = (write(tiny_dir, "attention", extra_vocab_rows=n) for n in (0, 128))
    target, draft = (padded, plain) if longer == "target" else (plain, padded)
    ids, rate = _answer(target, draft)
    assert len(ids) == N_REAL
    assert rate > 0.9


def test_an_id_that_the_draft_does_not_have_is_not_fed_to_it(tiny_dir: Path) -> None:
    """A prompt holds one of the target's extra ids: the draft stays silent, the answer is right."""
    target, draft = (write(tiny_dir, "attention", extra_vocab_rows=n) for n in (128, 0))
    truth = Truth(target)
    with Session(target, draft) as session:
        beyond = session._target.n_vocab - 1
        prompt = [1, 270, beyond, 280]
        got = session.complete(prompt, drafter="model", n_draft=4, temperature=0.0, max_tokens=20)
        assert session._draft is not None
        assert beyond not in session._draft.ids
        truth.check(prompt, got.token_ids, temperature=0.0, max_tokens=20)
    truth.session.close()
    shown_by(
        "unit.test_vocabulary_match.test_padding_rows_do_not_matter",
        "unit.test_law.test_output_law_is_the_targets_for_other_tables",
        "unit.test_sampling.test_prob_of_an_absent_id_is_zero",
    )


def test_vocabularies_that_differ_are_refused_at_load(tiny_dir: Path) -> None:
    """Both sizes, the first differing id with both texts, and what to do instead."""
    with pytest.raises(VocabularyMismatchError, match=r"the first is .*`--draft none`"):
        Session(
            write(tiny_dir, "attention"),
            tiny_models.write_llama(tiny_dir / "plain-words.gguf", vocab="plain"),
        )
    shown_by(
        "unit.test_vocabulary_match.test_a_refusal_names_both_and_the_first_differing_id",
        "tiny.test_command.test_incompatible_vocabularies_are_refused",
    )


def test_one_unused_token_that_differs_is_no_reason_to_refuse() -> None:
    shown_by(
        "tiny.test_engine.test_an_id_that_the_vocabularies_spell_differently_is_never_drafted",
        "unit.test_vocabulary_match.test_the_limit_is_one_id_in_a_thousand",
    )


@pytest.mark.parametrize("drafter", ["model", "splice"])
def test_the_drafts_special_tokens_do_not_matter(tiny_dir: Path, drafter: str) -> None:
    """Another end-of-sequence id in the draft: the pair is used, and the target's ends alone end
    the answer."""
    ids, rate = _answer(
        write(tiny_dir, "attention"), write(tiny_dir, "attention", eos_id=IM_END), drafter
    )
    assert len(ids) == N_REAL
    assert rate > 0.5
