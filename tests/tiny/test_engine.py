"""The round loop on tiny models: the text is the target's own, whatever the draft says."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from localspec.decoding.events import Finished, Prefill, Round
from localspec.errors import (
    BusyError,
    ContextOverflowError,
    EmptyPromptError,
    InvalidOptionError,
)
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests import tiny_models
from tests.tiny.truth import assert_same_text

GREEDY = {"temperature": 0.0, "max_tokens": 60}
PROMPT = "the and of"


def walk(n: int) -> list[int]:
    """A prompt of n tokens along the cycle that the tiny models follow."""
    token = max(tiny_models.successors(0, 0, "bytes"))
    ids = []
    for _ in range(n):
        ids.append(token)
        token = tiny_models.successors(0, 0, "bytes")[token]
    return ids


def state(session: Session) -> tuple[list[int], list[int]]:
    assert session._draft is not None
    return list(session._target.ids), list(session._draft.ids)


@pytest.mark.parametrize("drafter", ["model", "ngram"])
@pytest.mark.parametrize("n_draft", [0, 1, 2, 3, 5, 8, 16, 63])
def test_greedy_text_is_the_plain_text(pair: Session, drafter: str, n_draft: int) -> None:
    plain = pair.complete(PROMPT, drafter="none", **GREEDY)
    ours = pair.complete(PROMPT, drafter=drafter, n_draft=n_draft, **GREEDY)
    assert ours.token_ids == plain.token_ids
    assert ours.text == plain.text
    assert len(set(plain.token_ids)) > 3, "a text that repeats one token proves nothing"


@pytest.mark.parametrize("n_draft", [1, 2, 4, 8])
def test_match_text_depends_on_the_seed_alone(loose_pair: Session, n_draft: int) -> None:
    options = {"temperature": 1.0, "seed": 7, "max_tokens": 60, "verifier": "match"}
    plain = loose_pair.complete(PROMPT, drafter="none", **options)
    ours = loose_pair.complete(PROMPT, n_draft=n_draft, **options)
    assert_same_text(
        loose_pair, loose_pair.encode(PROMPT), ours.token_ids, plain.token_ids, **options
    )
    other = loose_pair.complete(PROMPT, n_draft=n_draft, **{**options, "seed": 8})
    assert other.token_ids != plain.token_ids


@pytest.mark.parametrize("verifier", ["rejection", "block"])
def test_a_seed_repeats_the_sampled_text(loose_pair: Session, verifier: str) -> None:
    options = {"temperature": 1.0, "seed": 7, "max_tokens": 40, "n_draft": 3, "verifier": verifier}
    assert (
        loose_pair.complete(PROMPT, **options).token_ids
        == loose_pair.complete(PROMPT, **options).token_ids
    )


@pytest.mark.parametrize("verifier", ["match", "rejection", "block"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_target_drafting_for_itself_is_always_right(
    tiny_target: Path, verifier: str, temperature: float
) -> None:
    if verifier == "match" and temperature:
        return  # the draft guesses the most probable token, the target samples: no promise
    with Session(tiny_target, tiny_target) as session:
        result = session.complete(
            PROMPT, temperature=temperature, verifier=verifier, n_draft=4, max_tokens=60, top_k=0,
            top_p=1.0, min_p=0.0, seed=3,
        )  # fmt: skip
    assert result.stats.draft_n_accepted > 30
    assert result.stats.acceptance_rate is not None
    assert result.stats.acceptance_rate >= 0.97


def test_a_random_draft_is_refused_and_the_text_is_right(tiny_target: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.gguf"
    tiny_models.write_llama(stranger, vocab="bytes", seed=99, cycle=True)
    with Session(tiny_target, stranger) as session:
        plain = session.complete(PROMPT, drafter="none", **GREEDY)
        ours = session.complete(PROMPT, n_draft=4, **GREEDY)
    assert ours.token_ids == plain.token_ids
    assert ours.stats.acceptance_rate is not None
    assert ours.stats.acceptance_rate < 0.2


@pytest.mark.parametrize("n_prompt", [511, 512, 513, 1025, 1])
def test_prompts_around_the_batch_size(tiny_target: Path, tiny_draft: Path, n_prompt: int) -> None:
    ids = walk(n_prompt)
    with Session(tiny_target, tiny_draft, LoadOptions(n_ctx=1280, n_batch=512)) as session:
        plain = session.complete(ids, drafter="none", temperature=0.0, max_tokens=8)
        ours = session.complete(ids, n_draft=4, temperature=0.0, max_tokens=8)
    assert ours.token_ids == plain.token_ids
    assert ours.stats.cache_n + ours.stats.prompt_n == n_prompt


@pytest.mark.parametrize("n_prompt", [240, 248, 255, 256])
def test_a_full_context_ends_with_its_own_reason(
    tiny_target: Path, tiny_draft: Path, n_prompt: int
) -> None:
    ids = walk(n_prompt)
    with Session(tiny_target, tiny_draft, LoadOptions(n_ctx=256)) as session:
        for drafter in ("none", "model", "ngram"):
            result = session.complete(ids, drafter=drafter, n_draft=16, temperature=0.0)
            assert result.reason == "context"
            assert len(result.token_ids) == 256 - n_prompt + 1
        with pytest.raises(ContextOverflowError, match=r"257 tokens.*256"):
            session.complete([5] * 257)
        assert session.complete("a", max_tokens=2).token_ids  # the session lives on


def test_the_draft_stops_at_its_own_smaller_context(tiny_target: Path, tiny_draft: Path) -> None:
    with Session(tiny_target, tiny_draft, LoadOptions(n_ctx=512)) as session:
        assert session._draft is not None
        session._draft.n_ctx = 256
        ids = walk(250)
        plain = session.complete(ids, drafter="none", temperature=0.0, max_tokens=40)
        ours = session.complete(ids, n_draft=4, temperature=0.0, max_tokens=40)
    assert ours.token_ids == plain.token_ids


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 4, 5])
def test_the_budget_is_exact(tiny_target: Path, max_tokens: int) -> None:
    with Session(tiny_target, tiny_target) as session:
        result = session.complete(PROMPT, temperature=0.0, n_draft=4, max_tokens=max_tokens)
        assert len(result.token_ids) == max_tokens == result.stats.predicted_n
        assert result.reason == "length"
        if max_tokens:
            ids = session.encode(PROMPT) + list(result.token_ids)
            assert state(session)[0] == ids[:-1]
        else:
            assert (result.text, result.stats.prompt_n, result.stats.n_passes) == ("", 0, 0)


@pytest.mark.parametrize("temperature", [0.0, 1e-9])
def test_tiny_temperatures_are_greedy(pair: Session, temperature: float) -> None:
    greedy = pair.complete(PROMPT, drafter="none", **GREEDY)
    options = {"temperature": temperature, "max_tokens": 60, "seed": 1}
    assert pair.complete(PROMPT, n_draft=3, **options).token_ids == greedy.token_ids


def test_top_k_zero_is_off(pair: Session) -> None:
    assert pair.complete(PROMPT, top_k=0, seed=1, max_tokens=5).stats.predicted_n == 5


def test_events_tell_the_whole_story(pair: Session) -> None:
    pair.clear_cache()
    events = list(pair.stream(PROMPT, n_draft=4, **GREEDY))
    kinds = [type(event) for event in events]
    n_prefill = kinds.count(Prefill)
    assert kinds == [Prefill] * n_prefill + [Round] * (len(kinds) - n_prefill - 1) + [Finished]
    rounds = [event for event in events if isinstance(event, Round)]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert "".join(r.text for r in rounds) == finished.text
    committed = [t.id for r in rounds for t in r.tokens if t.committed]
    assert tuple(committed) == finished.token_ids
    stats = finished.stats
    assert stats.draft_n == sum(r.n_draft for r in rounds)
    assert stats.draft_n_accepted == sum(r.n_accepted for r in rounds)
    assert stats.n_passes == len(rounds)
    assert stats.draft_n_rejected > 0
    for r in rounds:
        verdicts = [t.verdict for t in r.tokens]
        assert len(verdicts) == r.n_draft + 1
        assert verdicts.count("rejected") == (1 if verdicts[-1] == "correction" else 0)
        for token in r.tokens[:-1]:
            assert 0 <= token.p_raw <= 1
            assert token.q_raw is not None
            assert token.source == "model"


def test_the_second_turn_reuses_the_cache(pair: Session) -> None:
    pair.clear_cache()
    first = pair.complete(PROMPT, n_draft=3, **GREEDY)
    ids = pair.encode(PROMPT) + list(first.token_ids)
    second = pair.complete([*ids, 5, 6], n_draft=3, temperature=0.0, max_tokens=20)
    assert second.stats.cache_n == len(ids) - 1
    pair.clear_cache()
    cold = pair.complete([*ids, 5, 6], n_draft=3, temperature=0.0, max_tokens=20)
    assert cold.stats.cache_n == 0
    assert cold.token_ids == second.token_ids


def test_asking_again_decodes_the_last_token_again(pair: Session) -> None:
    answers = {pair.complete(PROMPT, n_draft=3, **GREEDY).token_ids for _ in range(3)}
    assert len(answers) == 1


@pytest.mark.parametrize("n_events", range(8))
def test_closing_at_any_event_leaves_a_clean_state(pair: Session, n_events: int) -> None:
    pair.clear_cache()
    cold = pair.complete(PROMPT, n_draft=4, **GREEDY)
    pair.clear_cache()
    stream = pair.stream(PROMPT, n_draft=4, **GREEDY)
    committed = pair.encode(PROMPT)
    for _ in range(n_events):
        event = next(stream)
        if isinstance(event, Round):
            committed += [t.id for t in event.tokens if t.committed]
    stream.close()  # type: ignore[attr-defined]
    target_ids, draft_ids = state(pair)
    assert target_ids == committed[: len(target_ids)]
    assert draft_ids == committed[: len(draft_ids)]
    assert len(target_ids) < len(committed)
    assert pair.complete(PROMPT, n_draft=4, **GREEDY).token_ids == cold.token_ids


def test_an_abandoned_stream_frees_the_session(pair: Session) -> None:
    stream = pair.stream(PROMPT, **GREEDY)
    next(stream)
    with pytest.raises(BusyError):
        pair.complete(PROMPT)
    del stream
    assert pair.complete(PROMPT, max_tokens=1).stats.predicted_n == 1


def test_cancel_from_another_thread(pair: Session) -> None:
    finished: list[Finished] = []
    started = threading.Event()

    def generate() -> None:
        for event in pair.stream(PROMPT, temperature=1.0, seed=1):
            if isinstance(event, Round):
                started.set()
            if isinstance(event, Finished):
                finished.append(event)

    thread = threading.Thread(target=generate)
    thread.start()
    assert started.wait(10)
    pair.cancel()
    thread.join(10)
    assert not thread.is_alive()
    assert finished[0].reason in ("cancelled", "context", "eos")
    assert pair.complete(PROMPT, **GREEDY).reason == "length"


def test_a_logit_bias_reaches_every_position(pair: Session) -> None:
    plain = pair.complete(PROMPT, n_draft=4, **GREEDY)
    banned = plain.token_ids[3]
    ours = pair.complete(PROMPT, n_draft=4, logit_bias={banned: -1e9}, **GREEDY)
    assert banned not in ours.token_ids


@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_penalties_count_committed_tokens_only(pair: Session, drafter: str) -> None:
    options = {**GREEDY, "presence_penalty": 5.0, "frequency_penalty": 3.0, "repeat_penalty": 1.5}
    plain = pair.complete(PROMPT, drafter="none", **options)
    ours = pair.complete(PROMPT, drafter=drafter, n_draft=8, **options)
    assert ours.token_ids == plain.token_ids
    assert plain.token_ids != pair.complete(PROMPT, drafter="none", **GREEDY).token_ids


def test_stop_strings_cut_the_text(pair: Session) -> None:
    whole = pair.complete(PROMPT, drafter="none", **GREEDY)
    stop = whole.text[10:13]
    expected = whole.text[: whole.text.index(stop)]
    for drafter, n_draft in (("none", 0), ("model", 1), ("model", 5), ("ngram", 8)):
        events = list(pair.stream(PROMPT, drafter=drafter, n_draft=n_draft, stop=stop, **GREEDY))
        finished = events[-1]
        assert isinstance(finished, Finished)
        assert (finished.reason, finished.text) == ("stop", expected)
        assert "".join(e.text for e in events if isinstance(e, Round)) == expected
        assert whole.token_ids[: len(finished.token_ids)] == finished.token_ids
        ids = pair.encode(PROMPT) + list(finished.token_ids)
        assert state(pair)[0] == ids[:-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"n_draft": -1}, "n_draft is -1"),
        ({"max_tokens": -5}, "max_tokens is -5"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"temprature": 1}, "did you mean temperature"),
        ({"verifier": "guess"}, "verifier is 'guess'"),
        ({"seed": -7}, "seed is -7"),
        ({"stop": ""}, "not empty"),
        ({"stop": 5}, "takes strings"),
        ({"top_k": 2.5}, "top_k must be a whole number"),
        ({"max_tokens": "3"}, "max_tokens must be a whole number"),
        ({"logit_bias": {"a": 1}}, "logit_bias maps token ids"),
        ({"repeat_penalty": 1e-300}, "repeat_penalty is 1e-300"),
        ({"logit_bias": {3: float("nan")}}, "logit_bias of token 3"),
    ],
)
def test_bad_options_are_named(pair: Session, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        pair.complete(PROMPT, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_threads": 100_000}, "at most 512"),  # ggml dies of more
        ({"n_ctx": 10**10}, "at most 16,777,216"),
        ({"n_ctx": "9"}, "whole number"),
        ({"tensor_split": "a"}, "list of numbers"),
        ({"n_batch": 0}, "n_batch is 0"),
    ],
)
def test_bad_load_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        LoadOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused_and_nothing_breaks(pair: Session, prompt: object) -> None:
    with pytest.raises(EmptyPromptError):
        pair.complete(prompt)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="token id 100000"):
        pair.complete([100000])
    assert pair.complete("a", max_tokens=1).stats.predicted_n == 1


def test_an_id_that_the_vocabularies_spell_differently_is_never_drafted(
    tiny_target: Path, tmp_path: Path
) -> None:
    with Session(tiny_target) as session:
        plain = session.complete(PROMPT, drafter="none", **GREEDY)
    differing = plain.token_ids[4]
    draft = tmp_path / "altered.gguf"
    tiny_models.write_llama(draft, vocab="bytes", cycle=True, alter_token={differing: "▁zzz"})
    with Session(tiny_target, draft) as session:
        assert any("differ" in note for note in session.notes)
        events = list(session.stream(PROMPT, n_draft=4, **GREEDY))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.token_ids == plain.token_ids
    drafted = {t.id for e in events if isinstance(e, Round) for t in e.tokens[:-1]}
    assert drafted
    assert differing not in drafted
