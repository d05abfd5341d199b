"""The last line of `localspec run`, to the letter."""

from __future__ import annotations

from dataclasses import replace

from localspec.cli.run import details_line, gain_line
from localspec.decoding.events import Stats

DRAFTED = Stats(
    cache_n=12,
    prompt_n=28,
    prompt_s=0.5,
    predicted_n=96,
    predicted_s=3.7,
    draft_n=84,
    draft_n_accepted=76,
    draft_n_rejected=6,
    n_passes=20,
    draft_s=0.74,
    verify_s=2.886,
    plain_s=5.254,
    seed=7,
    drafter="splice",
)


def test_what_drafting_gained() -> None:
    assert gain_line(DRAFTED, "eos") == (
        "96 tokens in 3.7 s · 26 tokens/s, 1.42 × plain · 93% of the guesses right · "
        "4.8 tokens per pass"
    )
    assert gain_line(DRAFTED, "length").startswith("96 tokens (cut at --max-tokens) in 3.7 s · ")
    assert "(cut: the context is full)" in gain_line(DRAFTED, "context")


def test_a_ratio_that_is_not_known_is_left_out() -> None:
    line = gain_line(replace(DRAFTED, plain_s=None), "eos")
    assert line.startswith("96 tokens in 3.7 s · 26 tokens/s · 93% of the guesses right")


def test_a_ratio_that_cannot_be_right_is_left_out() -> None:
    """A pass is never faster than a plain step: 4.85 tokens of a pass are the most."""
    assert replace(DRAFTED, plain_s=4.8 * 3.7).speed_up == 4.8
    assert replace(DRAFTED, plain_s=5.0 * 3.7).speed_up is None


def test_without_guesses_there_is_no_ratio() -> None:
    """The measured cost of a step is off by a few percent: that would be told as a gain."""
    idle = replace(DRAFTED, draft_n=0, draft_n_accepted=0, draft_n_rejected=0)
    assert gain_line(idle, "eos") == (
        "96 tokens in 3.7 s · 26 tokens/s · nothing drafted, as it would not have paid"
    )
    plain = replace(idle, drafter="none", predicted_s=30.0)
    assert gain_line(plain, "eos") == "96 tokens in 30.0 s · 3.2 tokens/s · plain decoding"


def test_answers_of_one_token_and_of_none() -> None:
    one = replace(DRAFTED, predicted_n=1, predicted_s=0.1, draft_n_accepted=0, n_passes=1)
    assert gain_line(one, "eos").startswith("1 token in 0.1 s · 10 tokens/s")
    assert gain_line(Stats(drafter="splice"), "cancelled") == "0 tokens"


def test_the_details() -> None:
    assert details_line(DRAFTED) == (
        "time: 20% drafting, 78% verification, 2% other · draft tokens: 76 accepted, 6 rejected, "
        "2 discarded · 20 target passes · prompt: 12 tokens cached, 28 evaluated in 0.50 s · "
        "drafter splice, verifier match, seed 7"
    )
