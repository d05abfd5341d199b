"""Ends, bytes and stops inside a block: scripted drafts against a scripted truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from localspec.decoding.answer import Limits, TextRelease
from localspec.decoding.controller import FixedController, Pace
from localspec.decoding.draft import Draft
from localspec.decoding.engine import Engine
from localspec.decoding.events import Finished, Round
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.sampling.distribution import Distribution
from localspec.sampling.params import SamplingParams
from localspec.sampling.seeds import sequential_uniforms
from tests import tiny_models


class Scripted:
    """Drafts the given answer, whatever the target thinks of it."""

    is_random = False

    def __init__(self, n_prompt: int, answer: Sequence[int]) -> None:
        self.n_prompt, self.answer = n_prompt, list(answer)

    def prepare(self, ids: Sequence[int], worth_reading: object) -> None: ...

    def settle(self, ids: Sequence[int]) -> None: ...

    def learn(self, p: Sequence[Distribution]) -> None: ...

    def propose(self, ids: Sequence[int], pace: Pace) -> Draft:
        draft = Draft()
        for token in self.answer[len(ids) - self.n_prompt :]:
            if not pace.another() or not pace.take(1.0):
                break
            draft.append(token, Distribution.one_hot(token), None, "model")
        return draft


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    path = tmp_path_factory.mktemp("text") / "target.gguf"
    tiny_models.write_llama(path, vocab="bytes", ends=True)
    with Model(Path(path)) as model:
        context = Context(model, n_ctx=256, n_threads=1)
        yield context
        context.close()


def run(context: Context, answer: Sequence[int], n_draft: int, **limits: object) -> list[object]:
    """Make the target say `answer` (a bias nearly decides) and draft it in blocks of n_draft."""
    prompt = context.model.vocabulary.tokenize("ab")
    steering = _Steered(context, len(prompt), answer)
    engine = Engine(
        steering,  # type: ignore[arg-type]
        Scripted(len(prompt), answer) if n_draft else None,
        FixedController(n_draft),
        SamplingParams(temperature=0.0),
        verifier="match",
        seed=0,
        rng=sequential_uniforms(0),
        limits=Limits(**{"max_tokens": len(answer) + 5, **limits}),  # type: ignore[arg-type]
    )
    return list(engine.run(prompt))


class _Steered:
    """A context whose logits say the wanted answer, then the end."""

    def __init__(self, context: Context, n_prompt: int, answer: Sequence[int]) -> None:
        self._context, self._n_prompt, self._answer = context, n_prompt, list(answer)

    def __getattr__(self, name: str) -> object:
        return getattr(self._context, name)

    def decode(self, ids: Sequence[int], *, n_rows: int) -> object:
        rows = [row.copy() for row in self._context.decode(ids, n_rows=n_rows)]
        for i, row in enumerate(rows):
            at = len(self._context.ids) - n_rows + i + 1 - self._n_prompt
            row[self._answer[at] if at < len(self._answer) else tiny_models.EOS] = 1e4
        return rows


def bytes_ids(text: str) -> list[int]:
    return [tiny_models.FIRST_BYTE + b for b in text.encode()]


@pytest.mark.parametrize("n_draft", [0, 1, 2, 3, 5, 9])
@pytest.mark.parametrize("text", ["naïve 👩‍👩‍👧 🇩🇪", "日本語 한국어", "Ещё раз: ёж"])
def test_characters_split_over_tokens_stream_whole(
    context: Context, text: str, n_draft: int
) -> None:
    events = run(context, bytes_ids(text), n_draft)
    released = [event.text for event in events if isinstance(event, Round)]
    assert "".join(released) == text
    assert not any("\ufffd" in piece for piece in released)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.text, finished.reason) == (text, "eos")
    assert list(finished.token_ids) == bytes_ids(text)


def test_half_a_character_at_the_end_is_one_replacement_mark(context: Context) -> None:
    finished = run(context, bytes_ids("a👩")[:3], 2)[-1]
    assert isinstance(finished, Finished)
    assert finished.text == "a\ufffd"


@pytest.mark.parametrize("n_draft", [0, 2, 5])
@pytest.mark.parametrize("max_tokens", [2, 3, 4])
def test_a_text_that_the_budget_cuts_ends_before_half_a_character(
    context: Context, max_tokens: int, n_draft: int
) -> None:
    """The model would have gone on: no replacement mark, in the stream neither; the ids stay."""
    ids = bytes_ids("a👩b")
    events = run(context, ids, n_draft, max_tokens=max_tokens)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.text) == ("length", "a")
    assert list(finished.token_ids) == ids[:max_tokens]
    assert "".join(event.text for event in events if isinstance(event, Round)) == "a"


@pytest.mark.parametrize("n_draft", [1, 2, 3, 4, 6])
def test_nothing_behind_an_end_inside_a_draft_is_kept(context: Context, n_draft: int) -> None:
    a, b, c = bytes_ids("abc")
    events = run(context, [a, tiny_models.EOS, b, c], n_draft)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.text, finished.token_ids) == ("eos", "a", (a,))
    assert finished.stats.predicted_n == 1
    assert len(context.ids) == len(context.model.vocabulary.tokenize("ab"))
    last = [event for event in events if isinstance(event, Round)][-1]
    kinds = [token.verdict for token in last.tokens]
    end = [token.id for token in last.tokens].index(tiny_models.EOS)
    assert all(kind == "discarded" for kind in kinds[end + 1 :])
    assert (kinds[end] == "discarded") == (end < last.n_draft)  # else the target said it itself
    assert finished.stats.draft_n_accepted == sum(kind == "accepted" for kind in kinds) <= 1


@pytest.mark.parametrize("n_draft", [0, 1, 2, 3, 4, 8])
@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("x END y", "END", "x "),
        ("abcDEFGHIJk", "DEFGHIJ", "abc"),
        ("DEFGHIJ", "DEFGHIJ", ""),
        ("aaEaENaEND", "END", "aaEaENa"),
        ("no stop EN", "END", "no stop EN"),
    ],
)
def test_stop_strings_wherever_the_block_ends(
    context: Context, text: str, stop: str, expected: str, n_draft: int
) -> None:
    events = run(context, bytes_ids(text), n_draft, stop=(stop,))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.text == expected
    assert finished.reason == ("eos" if expected == text else "stop")
    shown = ""
    for event in events:
        if isinstance(event, Round):
            shown += event.text
            assert expected.startswith(shown), "part of a stop string was shown"
    assert shown == expected
    assert list(finished.token_ids) == bytes_ids(expected)
    assert finished.stats.draft_n_accepted <= finished.stats.predicted_n == len(expected)


def test_a_special_token_stops_by_its_id(context: Context) -> None:
    a, b = bytes_ids("ab")
    finished = run(
        context, [a, tiny_models.IM_START, b], 3, stop_ids=frozenset([tiny_models.IM_START])
    )[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.text) == ("stop", "a")


def test_release_holds_the_longest_possible_stop() -> None:
    release = TextRelease(["abcd", "bx"])
    assert release.push(b"zabc") == "z"
    assert release.push(b"e") == "abce"
    assert release.push(b"ab") == ""
    assert release.push(b"x") == "a"
    assert release.stopped
