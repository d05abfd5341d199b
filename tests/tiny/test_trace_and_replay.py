"""A recorded answer, replayed: what it says of other draft lengths is what they really do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.bench.replay import oracle, replay_adaptive, replay_all, replay_fixed
from localspec.bench.trace import read_trace, record
from localspec.decoding.teacher_forcing import read_positions
from localspec.errors import InvalidOptionError
from localspec.session.session import Session
from tests import tiny_models
from tests.tiny.test_adaptive import flat

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from hindsight import optimal

PROMPT = "the and of"
Called = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def greedy(loose_pair: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A greedy answer of the pair whose draft is right now and then."""
    return recorded(loose_pair, tmp_path_factory.mktemp("trace") / "t.jsonl", temperature=0.0)


def recorded(session: Session, path: Path, **options: object) -> Path:
    session._measured._costs = flat()
    session.clear_cache()
    given = {"max_tokens": 50, "logit_bias": {tiny_models.EOS: -1e3}, **options}
    record(session, path, PROMPT, given, list(session.stream(PROMPT, **given)))
    return path


@pytest.mark.parametrize("n_draft", [0, 1, 2, 3, 5, 8, 16])
def test_a_greedy_replay_of_a_fixed_length_is_exact(
    loose_pair: Session, greedy: Path, n_draft: int
) -> None:
    recording = read_trace(greedy)
    real = loose_pair.complete(
        PROMPT,
        temperature=0.0,
        max_tokens=50,
        n_draft=n_draft,
        drafter="model" if n_draft else "none",
        logit_bias={tiny_models.EOS: -1e3},
    )
    assert list(real.token_ids) == recording.tokens
    found = replay_fixed(recording, n_draft)
    assert found.n_passes == real.stats.n_passes
    assert found.n_drafted == real.stats.draft_n


def test_nothing_beats_the_oracle(greedy: Path) -> None:
    recording = read_trace(greedy)
    best = oracle(recording)
    plain = replay_fixed(recording, 0)
    assert best.seconds < plain.seconds
    rivals = [replay_fixed(recording, k) for k in range(17)]
    rivals += [replay_adaptive(recording, use_copies=False), optimal(recording)]
    assert all(best.seconds <= rival.seconds + 1e-9 for rival in rivals)
    assert best.n_drafted == sum(1 for _ in recording.tokens) - best.n_passes


def test_the_best_causal_rule_is_at_least_as_good_as_plain(greedy: Path) -> None:
    recording = read_trace(greedy)
    assert optimal(recording).seconds <= replay_fixed(recording, 0).seconds


def test_a_trace_keeps_both_laws(loose_pair: Session, greedy: Path) -> None:
    trace = read_trace(greedy)
    assert trace.is_greedy
    assert trace.prompt_ids == loose_pair.encode(PROMPT)
    assert len(trace.positions) == 50
    for position in trace.positions:
        assert position.q is not None
        for top in (position.p, position.q):
            assert sum(top.probs) + top.rest == pytest.approx(1.0, abs=1e-4)
            assert list(top.probs) == sorted(top.probs, reverse=True)
        assert position.p.ids[0] == position.token  # greedy, EOS never first
    kinds = [json.loads(line)["type"] for line in greedy.read_text().splitlines()]
    assert kinds[0] == "trace"
    assert {"prefill", "round", "finished", "position"} <= set(kinds)


def test_a_sampled_answer_gives_estimates_and_no_oracle(
    loose_pair: Session, tmp_path: Path
) -> None:
    path = recorded(loose_pair, tmp_path / "s.jsonl", temperature=1.0, drafter="model")
    rows = replay_all(read_trace(path), (1, 4))
    assert "oracle, model" not in rows
    assert rows["plain"].n_passes == 50
    assert rows["fixed 4"].n_passes < 50


def test_a_draft_reads_only_what_it_knows(loose_pair: Session) -> None:
    """Ids that the draft lacks are never fed to it, in the prompt or in the answer."""
    pair = loose_pair._pair
    prompt = loose_pair.encode(PROMPT)
    answer = loose_pair.complete(PROMPT, temperature=0.0, max_tokens=12).token_ids
    ids = [*prompt, *answer]
    fed: list[int] = []
    with pair.reading_draft() as draft:
        assert draft is not None
        decode = draft.decode

        def watched(batch, *, n_rows):  # type: ignore[no-untyped-def]
            fed.extend(batch)
            return decode(batch, n_rows=n_rows)

        draft.decode = watched  # type: ignore[method-assign]
        strange = {prompt[1]}
        found = list(
            read_positions(pair.target, draft, ids, len(prompt), lambda t: t not in strange)
        )
        last = max(i for i, token in enumerate(ids[: len(prompt)]) if token in strange)
        assert fed[: len(prompt) - 1 - last] == ids[last + 1 : len(prompt)]
        assert not strange & set(fed)
        assert found[0].q is not None
        fed.clear()
        strange = {answer[5]} - set(prompt)
        found = list(
            read_positions(pair.target, draft, ids, len(prompt), lambda t: t not in strange)
        )
        if strange:
            assert not strange & set(fed)
            first = answer.index(answer[5])
            assert [position.q is not None for position in found] == [
                i <= first for i in range(len(answer))
            ]


@pytest.mark.parametrize(
    "text",
    ["", "no json", '{"type": "round"}', '{"type": "trace", "version": 99}', '{"type": "trace"}',
     '{"type": "trace", "version": 1}\n{"type": "position", "token": 1, "p": {}, "q": null}'],
)  # fmt: skip
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, command: Called, text: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidOptionError):
        read_trace(path)
    code, _, stderr = command("replay", path)
    assert code == 2
    assert stderr


def test_run_trace_replay_on_the_command_line(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path, command: Called
) -> None:
    path = tmp_path / "answer.jsonl"
    pair = ["-m", tiny_target, "-md", tiny_draft, "-t", 1, "--temp", 0, "-n", 20]
    code, _, stderr = command("run", *pair, "hello", "--trace", path)
    assert code == 0
    assert str(path) in stderr
    code, stdout, _ = command("replay", path)
    assert code == 0
    for word in ("plain", "fixed 4", "controller, splice", "oracle", "tokens/s", "exact"):
        assert word in stdout
    assert command("run", *pair, "hello", "--trace", tmp_path / "no" / "x.jsonl")[0] == 2


def test_audit_and_calibrate_on_the_command_line(
    tiny_target: Path, tiny_draft: Path, command: Called
) -> None:
    pair = ["-m", tiny_target, "-md", tiny_draft, "-t", 1]
    for n_draft, said in (
        ((), "identical: 30 tokens"),
        (("--n-draft", 3), "draft tokens were checked"),
        (("--n-draft", 0), "nothing was drafted, so this shows little"),
    ):
        code, stdout, _ = command("audit", "hello", *pair, "-n", 30, *n_draft)
        assert code == 0
        assert said in stdout
    code, stdout, _ = command("calibrate", *pair, "--depth", 0, "--depth", 300)
    assert code == 0
    for word in ("depth 0", "depth 300", "T(n)", "D(n)", "draft model"):
        assert word in stdout
    code, _, stderr = command("calibrate", *pair, "--depth", 10**6)
    assert code == 2
    assert "leaves no room" in stderr
