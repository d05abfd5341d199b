"""What a result says about itself: promise, recipe, plain data, arrays, HTML."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import localspec
from localspec.errors import InvalidOptionError
from localspec.session.session import Session

PROMPT = "the and of"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"temperature": 0.0, "n_draft": 3}, "bits"),
        ({"temperature": 0.0, "drafter": "none"}, "bits"),
        ({"temperature": 0.0}, "near ties"),
        ({"seed": 7, "n_draft": 3}, "bits"),
        ({"seed": 7}, "near ties"),
        ({"seed": 7, "n_draft": 3, "verifier": "rejection"}, "bits"),
        ({"seed": 7, "n_draft": 3, "verifier": "block"}, "bits"),
        ({"seed": 7, "verifier": "block"}, "law"),
        ({"n_draft": 3, "verifier": "rejection"}, "law"),
        ({"n_draft": 3}, "law"),
        ({"drafter": "ngram", "n_draft": 3}, "bits"),
    ],
)
def test_the_result_says_which_promise_holds_and_can_be_made_again(
    loose_pair: Session, options: dict[str, Any], kind: str
) -> None:
    loose_pair.clear_cache()
    result = loose_pair.complete(PROMPT, max_tokens=30, **options)
    assert result.promise is not None
    assert result.recipe is not None
    assert (result.promise.kind, result.promise.cold) == (kind, True), result.promise.words
    loose_pair.complete("something else", max_tokens=5)
    again = loose_pair.rerun(json.loads(result.recipe.to_json()))
    assert again.recipe is not None
    assert again.recipe.prompt_ids == result.recipe.prompt_ids
    if kind == "bits":
        assert again.token_ids == result.token_ids
        assert [r.n_draft for r in again.rounds] == [r.n_draft for r in result.rounds]
    elif kind == "near ties":  # the tiny models have none
        assert again.token_ids == result.token_ids
    assert again.stats.seed == result.stats.seed


def test_a_warm_cache_weakens_the_promise_and_is_told(loose_pair: Session) -> None:
    options = {"temperature": 0.0, "n_draft": 3, "max_tokens": 10}
    loose_pair.complete(PROMPT, **options)
    result = loose_pair.complete(PROMPT, **options)
    assert result.promise is not None
    assert (result.promise.kind, result.promise.cold) == ("near ties", False)
    assert "came from the cache" in result.promise.words


def test_exact_mode_promises_bits_at_any_pace(tiny_target: Path, tiny_draft: Path) -> None:
    with localspec.load(tiny_target, tiny_draft, exact=True) as session:
        session.clear_cache()
        result = session.complete(PROMPT, temperature=0.0, max_tokens=20)
        assert result.promise is not None
        assert (result.promise.kind, result.promise.exact) == ("bits", True)
        assert result.recipe is not None
        assert session.rerun(result.recipe).token_ids == result.token_ids


def test_a_recipe_of_another_session_is_refused(loose_pair: Session, tiny_target: Path) -> None:
    recipe = loose_pair.complete(PROMPT, max_tokens=3).recipe
    assert recipe is not None
    with (
        localspec.load(tiny_target) as other,
        pytest.raises(InvalidOptionError, match=r"not as the one .*target: .*loose.gguf"),
    ):
        other.rerun(recipe)
    for wrong in ("", "{}", "[]", {"type": "x"}, 5, {**recipe.to_dict(), "version": 9}):
        with pytest.raises(InvalidOptionError, match="no recipe"):
            loose_pair.rerun(wrong)  # type: ignore[arg-type]


def test_a_recipe_holds_options_that_json_cannot_say(loose_pair: Session) -> None:
    banned = loose_pair.encode("a")[-1]
    result = loose_pair.complete(
        PROMPT, seed=1, n_draft=2, max_tokens=8, logit_bias={banned: float("-inf")}, stop=["q"]
    )
    assert result.recipe is not None
    assert result.recipe.options["logit_bias"] == {str(banned): "-inf"}
    assert loose_pair.rerun(result.recipe.to_json()).token_ids == result.token_ids


def test_everything_has_a_form_as_plain_data(loose_pair: Session) -> None:
    events = list(loose_pair.stream(PROMPT, n_draft=2, max_tokens=5))
    result = loose_pair.complete(PROMPT, n_draft=2, max_tokens=5)
    error = localspec.EmptyPromptError("nothing")
    things = [
        *events, result, result.stats, result.recipe, error, localspec.Options(logit_bias={3: 1}),
        localspec.LoadOptions(tensor_split=(1, 2)), localspec.Options(seed=np.int64(3)),
        *loose_pair.complete_many(["a", ""], max_tokens=2),
    ]  # fmt: skip
    for thing in things:
        assert json.loads(localspec.to_json(thing)) == localspec.to_dict(thing)
    assert localspec.to_dict(error) == {
        "type": "error", "error": "EmptyPromptError", "message": "nothing",
    }  # fmt: skip
    assert json.loads(result.to_json())["rounds"][0]["tokens"]
    with pytest.raises(InvalidOptionError, match="no form as a dict"):
        localspec.to_dict(object())


def test_numpy_in_and_out(loose_pair: Session) -> None:
    ids = np.array(loose_pair.encode(PROMPT), np.int32)
    options = {"temperature": 0.0, "n_draft": 3, "max_tokens": 12}
    result = loose_pair.complete(ids, **options)
    assert result.token_ids == loose_pair.complete(PROMPT, **options).token_ids
    assert loose_pair.decode(ids) == PROMPT
    columns = result.arrays()
    n = sum(len(round_.tokens) for round_ in result.rounds)
    assert {name: len(column) for name, column in columns.items()} == dict.fromkeys(columns, n)
    kept = np.isin(columns["verdict"], ["accepted", "bonus", "correction"])
    assert tuple(columns["id"][kept].tolist()) == result.token_ids
    assert columns["p"].dtype == np.float64
    assert np.isnan(columns["q_raw"][columns["source"] == "target"]).all()
    for wrong in (np.zeros((2, 2), int), np.array([1.5]), np.array(["a"]), [1, "a"], 5, b"x", {}):
        with pytest.raises(InvalidOptionError, match="a prompt is text"):
            loose_pair.complete(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="token id"):
        loose_pair.decode([10**6])


def test_html_shows_accepted_and_rejected_tokens_and_escapes(pair: Session) -> None:
    result = pair.complete(PROMPT, temperature=0.0, n_draft=4, max_tokens=40)
    page = result._repr_html_()
    assert '<span class="model">' in page
    assert "<del title=" in page
    assert "accepted" in page
    assert "<script" not in page
    shown = repr(result)
    assert shown.startswith("Completion('")
    assert "40 tokens, length, acceptance rate" in shown
    assert len(shown) < 200


def test_hostile_text_stays_text_in_html() -> None:
    evil = "<script>alert(1)</script>\x1b[2J\u202e&\"'"
    page = localspec.Completion(evil, (1,), "eos", localspec.Stats())._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_the_asynchronous_result_has_the_same_recipe(loose_pair: Session) -> None:
    options = {"seed": 3, "n_draft": 2, "max_tokens": 6}
    plain = loose_pair.complete(PROMPT, **options)
    made = asyncio.run(loose_pair.acomplete(PROMPT, **options))
    assert made.recipe == plain.recipe


def test_a_recipe_of_brackets_alone_is_a_named_error() -> None:
    with pytest.raises(InvalidOptionError, match="no recipe"):
        localspec.Recipe.from_dict("[" * 100_000)
