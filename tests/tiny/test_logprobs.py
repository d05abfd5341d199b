"""Log-probabilities: drafted or not, they are what the target says there, decoded plainly."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from localspec.decoding.event_json import as_json, round_from_json
from localspec.decoding.events import Finished, Round
from localspec.decoding.logprobs import logprob_from_json
from localspec.errors import InvalidOptionError
from localspec.sampling.chain import distribution
from localspec.sampling.params import SamplingParams
from localspec.session.batch_results import Answered
from localspec.session.session import Session
from tests.batch_noise import batch_noise, log_softmax

N_PROMPTS = 50


@pytest.fixture(scope="module")
def session(ending_pair: Session) -> Session:
    return ending_pair


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(11)
    return [[1, *rng.integers(3, 259, int(n)).tolist()] for n in rng.integers(1, 90, N_PROMPTS)]


def plain_logprobs(session: Session, ids: list[int], n_prompt: int) -> list[np.ndarray]:
    """Log-softmax before each token behind the prompt, decoded one at a time, in float64."""
    found = []
    for i in range(n_prompt, len(ids)):
        row = session.target_rows(ids[: i - 1], [ids[i - 1]])[0]
        found.append(log_softmax(row))
    return found


def alike_rows(session: Session, ids: list[int], rounds: Sequence[Round]) -> list[np.ndarray]:
    """Logits before each committed token, from batches of the shapes that the answer had.

    The last round comes first, so that the cache before each is the one that it had.
    """
    found: list[np.ndarray] = []
    for round_ in reversed(rounds):
        known = ids[: round_.depth]
        draft = [token.id for token in round_.tokens[: round_.n_draft]]
        rows = session.target_rows(known[:-1], [known[-1], *draft])
        n_committed = sum(token.logprob is not None for token in round_.tokens)
        found[:0] = [row.copy() for row in rows[:n_committed]]
    return found


@pytest.fixture(scope="module")
def noise(session: Session) -> float:
    found = batch_noise(session).logprob
    assert found < 0.1, "so much that the comparison says little"
    return found


@pytest.mark.parametrize("verifier", ["match", "rejection", "block"])
def test_raw_logprobs_are_plain_decodings(session: Session, verifier: str, noise: float) -> None:
    """To 1e-5 in batches of equal shape; one token at a time, as near as shapes let them be."""
    accepted = 0
    for i, prompt in enumerate(prompts()):
        events = list(
            session.stream(
                prompt, max_tokens=8, temperature=0.8, seed=i, n_draft=3, verifier=verifier,
                logprobs=5,
            )
        )  # fmt: skip
        got = events[-1]
        assert isinstance(got, Finished)
        assert got.logprobs is not None
        assert tuple(entry.id for entry in got.logprobs) == got.token_ids
        ids = [*prompt, *got.token_ids]
        rounds = [event for event in events if isinstance(event, Round)]
        alike = [log_softmax(row) for row in alike_rows(session, ids, rounds)]
        alone = plain_logprobs(session, ids, len(prompt))
        for rows, error in ((alike[: len(alone)], 1e-5), (alone, noise)):
            for entry, row in zip(got.logprobs, rows, strict=True):
                assert entry.logprob == pytest.approx(row[entry.id], abs=error)
                best = np.sort(row)[::-1][:5]
                assert [top.logprob for top in entry.top] == pytest.approx(best, abs=error)
                for top in entry.top:
                    assert top.logprob == pytest.approx(row[top.id], abs=error)
        for entry in got.logprobs:
            assert entry.accepted == (entry.source != "target")
            accepted += entry.accepted
        spelled = b"".join(entry.piece for entry in got.logprobs)
        whole = codecs.getincrementaldecoder("utf-8")("replace")
        assert whole.decode(spelled, final=got.reason == "eos") == got.text
    assert accepted > 20


def test_processed_logprobs_are_of_the_chain(session: Session) -> None:
    params = SamplingParams(temperature=0.7, top_k=5, top_p=0.9, frequency_penalty=0.4)
    options = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "frequency_penalty": 0.4}
    for i, prompt in enumerate(prompts()[:15]):
        got = session.complete(
            prompt, max_tokens=6, seed=i, n_draft=3, logprobs=64, logprobs_of="processed", **options
        )
        assert got.logprobs is not None
        ids = list(prompt)
        rows = alike_rows(session, [*prompt, *got.token_ids], got.rounds)
        for entry, row in zip(got.logprobs, rows, strict=False):  # one more where a text ended
            law = distribution(row, params, ids)
            assert entry.logprob == pytest.approx(math.log(law.prob(entry.id)), abs=1e-6)
            assert len(entry.top) == len(law.ids) <= 5
            assert sum(math.exp(top.logprob) for top in entry.top) == pytest.approx(1.0, abs=1e-5)
            ids.append(entry.id)


def test_greedy_probabilities_are_not_all_one(session: Session) -> None:
    got = session.complete(prompts()[0], max_tokens=20, temperature=0.0, n_draft=4, logprobs=0)
    assert got.logprobs is not None
    assert min(entry.logprob for entry in got.logprobs if entry.logprob is not None) < -0.01
    assert all(entry.top == () for entry in got.logprobs)


def test_prompt_logprobs_are_the_same_for_every_chunk(session: Session) -> None:
    """More tokens than the rows of one decode (64)."""
    prompt = [1, *np.random.default_rng(2).integers(3, 259, 120).tolist()]
    got = session.complete(prompt, max_tokens=2, temperature=0.0, prompt_logprobs=3)
    assert got.prompt_logprobs is not None
    assert [entry.id for entry in got.prompt_logprobs] == prompt
    assert got.prompt_logprobs[0].logprob is None
    session.clear_cache()
    pieces = (prompt[:64], prompt[64:-1])
    rows = [*session.target_rows([], pieces[0]), *session.target_rows(*pieces)]
    alike = [log_softmax(row) for row in rows]
    for entry, row in zip(got.prompt_logprobs[1:], alike, strict=True):
        assert entry.logprob == pytest.approx(row[entry.id], abs=1e-5)
        assert len(entry.top) == 3
        assert entry.source == "prompt"
    assert got.logprobs is None


def test_prompt_logprobs_alone_generate_nothing(session: Session) -> None:
    got = session.complete([1, 50, 60, 70], max_tokens=0, prompt_logprobs=1)
    assert got.reason == "length"
    assert got.token_ids == ()
    assert got.prompt_logprobs is not None
    assert len(got.prompt_logprobs) == 4


def test_a_prompt_in_the_cache_is_read_anew(session: Session) -> None:
    prompt = [1, 50, 60, 70, 80]
    session.complete(prompt, max_tokens=3)
    first = session.complete(prompt, max_tokens=1, prompt_logprobs=2).prompt_logprobs
    session.clear_cache()
    assert session.complete(prompt, max_tokens=1, prompt_logprobs=2).prompt_logprobs == first


def test_a_stop_string_takes_its_logprobs_along(session: Session) -> None:
    prompt = prompts()[3]
    whole = session.complete(prompt, max_tokens=24, temperature=0.0, n_draft=4, logprobs=1)
    stop = whole.text[3:5]
    got = session.complete(
        prompt, max_tokens=24, temperature=0.0, n_draft=4, logprobs=1, stop=(stop,)
    )
    assert got.reason == "stop"
    assert got.logprobs is not None
    assert tuple(entry.id for entry in got.logprobs) == got.token_ids
    assert whole.logprobs is not None
    assert got.logprobs == whole.logprobs[: len(got.logprobs)]


def test_rounds_carry_them_too(session: Session) -> None:
    events = list(session.stream(prompts()[5], max_tokens=12, seed=1, n_draft=3, logprobs=2))
    finished = events[-1]
    assert isinstance(finished, Finished)
    streamed = [
        token.logprob
        for event in events
        if isinstance(event, Round)
        for token in event.tokens
        if token.committed and token.logprob is not None
    ]
    assert finished.logprobs == tuple(streamed[: len(finished.token_ids)])
    for event in events:
        if isinstance(event, Round):
            refused = [token for token in event.tokens if not token.committed]
            assert all(token.logprob is None for token in refused)


@pytest.mark.parametrize(
    "wrong", [{"logprobs": 65}, {"logprobs": -1}, {"prompt_logprobs": 65}, {"logprobs_of": "log"}]
)
def test_wrong_options_are_refused(session: Session, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidOptionError, match="logprobs"):
        session.complete([1, 5], max_tokens=1, **wrong)


def test_logprobs_survive_the_way_through_json(loose_pair: Session) -> None:
    """Rounds, whole results and rows of a batch: what was written is what is read."""
    options = {"logprobs": 3, "logprobs_of": "processed", "prompt_logprobs": 1, "top_k": 2}
    got = loose_pair.complete("the and", max_tokens=24, seed=5, n_draft=4, **options)
    assert got.logprobs is not None
    assert got.prompt_logprobs is not None
    for round_ in got.rounds:
        again = round_from_json(json.loads(json.dumps(as_json(round_), allow_nan=False)))
        assert [t.logprob for t in again.tokens] == [t.logprob for t in round_.tokens]
    row = json.loads(got.to_json())
    assert tuple(map(logprob_from_json, row["logprobs"])) == got.logprobs
    assert tuple(map(logprob_from_json, row["prompt_logprobs"])) == got.prompt_logprobs
    assert got.prompt_logprobs[0].logprob is None
    answered = Answered.of(0, "0", "", got)
    assert Answered.from_dict(json.loads(json.dumps(answered.to_dict()))) == answered
