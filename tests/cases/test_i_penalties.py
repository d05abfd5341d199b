"""Cases, section I: penalties and logit bias with drafts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.decoding.events import Round
from localspec.sampling.chain import distribution
from localspec.sampling.params import SamplingParams
from localspec.session.session import Session
from tests import tiny_models
from tests.batch_noise import batch_noise
from tests.tiny.truth import assert_same_text


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("i")
    target = tiny_models.write_llama(folder / "t.gguf", vocab="bytes")
    draft = tiny_models.write_llama(folder / "d.gguf", vocab="bytes", noise=0.1)
    with Session(Path(target), Path(draft)) as loaded:
        yield loaded


PENALTIES = {"presence_penalty": 1.5, "frequency_penalty": 0.5, "penalty_last_n": 64}


def test_row_i_sees_the_committed_tokens_and_the_drafts_before_it(session: Session) -> None:
    """Every p that was reported is recomputed from scratch, teacher-forced, with a fresh count."""
    params = SamplingParams(temperature=1.0, **PENALTIES)
    ids = session.encode("the and")
    events = session.stream(
        "the and", temperature=1.0, seed=5, n_draft=8, max_tokens=40, **PENALTIES
    )
    verdicts = set()
    checks: list[tuple[list[int], list[tuple[int, float]]]] = []
    for event in events:
        if not isinstance(event, Round):
            continue
        kept = [token for token in event.tokens if token.committed]
        judged = [t for t in event.tokens if t.verdict in ("accepted", "rejected")]
        checks.append((list(ids), [(t.id, t.p) for t in judged]))
        verdicts |= {t.verdict for t in event.tokens}
        ids += [token.id for token in kept]
    assert {"accepted", "rejected"} <= verdicts
    noise = batch_noise(session)
    assert noise.logprob < 0.1
    for before, reported in checks:
        here = list(before)
        for token, p in reported:
            row = session.target_rows(here[:-1], here[-1:])[0]
            # Another batch shape moves p by a few percent at most; a wrong count by 40 % and more.
            again = distribution(row, params, here).prob(token)
            assert again == pytest.approx(p, rel=noise.logprob, abs=noise.chance)
            here.append(token)


def test_frequency_penalties_of_either_sign_do_their_work(session: Session) -> None:
    """+2, 0 and -2 give three texts, each the plain one."""
    texts = []
    for penalty in (2.0, 0.0, -2.0):
        options = {"temperature": 0.0, "frequency_penalty": penalty, "max_tokens": 40}
        plain = session.complete("the and the and", drafter="none", **options)
        ours = session.complete("the and the and", n_draft=6, **options)
        ids = session.encode("the and the and")
        assert_same_text(session, ids, ours.token_ids, plain.token_ids, **options)
        texts.append(ours.text)
    assert len(set(texts)) == 3


@pytest.mark.parametrize("verifier", ["match", "rejection", "block"])
def test_a_forbidden_id_never_appears(session: Session, verifier: str) -> None:
    """At accepted, residual and bonus positions alike; the most frequent id is forbidden."""
    options = {"temperature": 1.0, "seed": 3, "n_draft": 4, "max_tokens": 200}
    free = session.complete("the", verifier=verifier, **options).token_ids
    favourite = max(set(free), key=free.count)
    got = session.complete("the", verifier=verifier, logit_bias={favourite: -100.0}, **options)
    assert favourite not in got.token_ids
    assert len(got.token_ids) == 200
