"""K. End of generation, stop strings and budget inside a block."""

from __future__ import annotations

from tests.cases.proof import shown_by


def test_an_end_in_the_middle_of_an_accepted_draft() -> None:
    """Stop at the first end; what was drafted behind it is not shown, counted or kept."""
    shown_by("tiny.test_text.test_nothing_behind_an_end_inside_a_draft_is_kept")


def test_stop_strings_wherever_the_block_ends() -> None:
    """Cut right before the stop string; later ids are discarded, the caches trimmed."""
    shown_by(
        "tiny.test_text.test_stop_strings_wherever_the_block_ends",
        "tiny.test_engine.test_stop_strings_cut_the_text",
    )


def test_the_beginning_of_a_stop_string_is_held_back() -> None:
    """The longest possible beginning is held, and flushed when it does not complete."""
    shown_by("tiny.test_text.test_release_holds_the_longest_possible_stop")


def test_the_budget_is_exact() -> None:
    """max_tokens 0, 1, 2, K, K + 1 with full acceptance: exactly that many, caches consistent."""
    shown_by("tiny.test_engine.test_the_budget_is_exact")


def test_control_tokens_stop_by_id() -> None:
    """A stop that is one special token matches by its id; every end-of-generation id ends."""
    shown_by("tiny.test_text.test_a_special_token_stops_by_its_id")
