"""C. Speculative sampling: the law, and the numbers it is computed from."""

from __future__ import annotations

from tests.cases.proof import shown_by


def test_the_law() -> None:
    """Every transform is in p before the ratio; q is one-hot for a draft that chose its best token,
    and what it was drawn from otherwise; wrong pairings and mere equality are found out."""
    shown_by(
        "unit.test_law.test_output_law_is_the_targets",
        "unit.test_law.test_wrong_verifier_is_found_out",
        "unit.test_law.test_block_gains_nothing_with_a_deterministic_draft",
        "unit.test_law.test_first_token_is_kept_with_the_overlap_of_p_and_q",
        "unit.test_law_controlled.test_deterministic_drafts_may_be_trimmed",
        "tiny.test_law_end_to_end.test_the_law_is_the_targets",
        "unit.test_sampling.test_chain_agrees_with_the_reference",
    )


def test_temperature_zero_and_nearly_zero() -> None:
    """An explicit greedy branch, no division by the temperature, drafts still accepted."""
    shown_by(
        "tiny.test_engine.test_tiny_temperatures_are_greedy",
        "unit.test_sampling.test_a_vanishing_temperature_is_argmax",
        "unit.test_numbers.test_temperatures_at_the_ends",
    )


def test_one_array_for_draw_and_ratio() -> None:
    """The draft's token is drawn from the very Distribution whose q is judged (ModelDrafter._draw);
    a draw from another array bends the law, which the end-to-end law test would show."""
    shown_by(
        "tiny.test_law_end_to_end.test_the_law_is_the_targets",
        "tiny.test_law_end_to_end.test_a_planted_bug_is_noticed",
    )


def test_large_logits_do_not_overflow() -> None:
    """430 in a vocabulary of 250,000; up to the largest float32."""
    shown_by(
        "unit.test_numbers.test_430_in_a_vocabulary_of_250_000",
        "unit.test_numbers.test_huge_logits",
        "unit.test_sampling.test_huge_logits_overflow_nowhere",
    )


def test_what_is_no_number() -> None:
    """NaN, infinities, nothing left: a named error, and the session goes on."""
    shown_by(
        "unit.test_numbers.test_one_poisoned_logit_is_a_named_error",
        "unit.test_numbers.test_an_all_masked_row_is_told_apart",
        "unit.test_numbers.test_nothing_left_after_a_refusal_draws_from_the_target",
        "tiny.test_poisoned.test_a_poisoned_row_ends_the_answer_and_not_the_session",
        "tiny.test_poisoned.test_a_file_of_nan",
    )
