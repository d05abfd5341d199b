"""The chat without a screen, on a scripted pair: what may happen when, and what is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.chat import Chat
from localspec.chat.commands import run_command
from localspec.chat.conversation import Turn
from localspec.chat.engine_thread import EngineThread
from localspec.chat.live_answer import Figures
from localspec.chat.saved import SavedChat
from localspec.chat.settings import ChatSettings
from localspec.errors import BusyError, EngineError, InvalidOptionError, ModelNotFoundError
from tests.scripted_chat import (
    RecordingFrontEnd,
    ScriptedSession,
    ask,
    plain,
    round_of,
    script,
    wait,
)


def test_a_question_is_answered_and_saved(made: Callable[..., Chat], tmp_path: Path) -> None:
    session = ScriptedSession([script([round_of(0, ["Hel", "lo"], " you"), plain(1, "!")])])
    chat = made(session)
    assert ask(chat, "Hi") == "Hello you!"
    [(prompt, options)] = session.asked
    assert prompt == [{"role": "user", "content": "Hi"}]
    assert options == {"n_alternatives": 5}
    chat.close()
    read = SavedChat.open(chat.saved.id, tmp_path).conversation
    assert [turn.text for turn in read.path()] == ["Hi", "Hello you!"]
    assert read.path()[1].rounds[0].n_accepted == 2
    assert read.path()[1].model == "big-Q4_K_M.gguf"


def test_a_question_asked_while_loading_waits(made: Callable[..., Chat]) -> None:
    chat = made(ScriptedSession(), load=False)
    with pytest.raises(InvalidOptionError, match="no model is loaded"):
        chat.send("too early")
    chat.load()
    chat.send("early")
    wait(chat, lambda: not chat.is_busy and chat.conversation.last("assistant") is not None)
    assert [turn.text for turn in chat.conversation.path()] == ["early", "Hello"]


def test_stopping_keeps_what_was_made_and_it_can_be_continued(made: Callable[..., Chat]) -> None:
    gate = threading.Semaphore(0)
    rounds = [plain(i, f"{i} ") for i in range(5)]
    session = ScriptedSession([script(rounds), script([plain(0, "more")])], gate=gate)
    chat = made(session)
    chat.send("count")
    gate.release(2)
    wait(chat, lambda: chat.live is not None and chat.live.text == "0 1 ")
    with pytest.raises(BusyError, match="Esc stops it"):
        chat.send("again")
    assert chat.stop()
    wait(chat)
    turn = chat.conversation.last("assistant")
    assert turn is not None
    assert (turn.text, turn.reason) == ("0 1 ", "cancelled")
    gate.release(10)
    chat.continue_answer()
    wait(chat)
    prompt, _ = session.asked[1]
    assert prompt == [0, *turn.token_ids]  # the question's tokens, then the answer's own
    longer = chat.conversation.last("assistant")
    assert longer is not None
    assert (longer.id, longer.text, longer.reason) == (turn.id, "0 1 more", "eos")
    assert len(longer.rounds) == 3
    with pytest.raises(InvalidOptionError, match="complete"):
        chat.continue_answer()


def test_stopped_before_the_first_word_leaves_the_question(made: Callable[..., Chat]) -> None:
    gate = threading.Semaphore(0)
    chat = made(ScriptedSession([script([plain(0, "never")])], gate=gate))
    chat.send("wait")
    wait(chat, lambda: chat.live is not None and chat.live.prompt_total == 10)
    chat.stop()
    wait(chat)
    assert [turn.role for turn in chat.conversation.path()] == ["user"]
    assert not chat.stop()


def test_retry_and_edit_make_branches(made: Callable[..., Chat]) -> None:
    scripts = [script([plain(0, word)]) for word in ("one", "two", "three")]
    session = ScriptedSession(scripts)
    chat = made(session)
    ask(chat, "question")
    chat.retry()
    wait(chat)
    answer = chat.conversation.last("assistant")
    assert answer is not None
    assert answer.text == "two"
    assert chat.conversation.siblings(answer.id)[0] == 1
    question = chat.conversation.last("user")
    assert question is not None
    chat.edit(question.id, "other question")
    wait(chat)
    assert [turn.text for turn in chat.conversation.path()] == ["other question", "three"]
    assert session.asked[2][0] == [{"role": "user", "content": "other question"}]
    chat.branch(chat.conversation.path()[0].id, -1)
    assert [turn.text for turn in chat.conversation.path()] == ["question", "two"]


def test_an_error_in_the_middle_keeps_the_text(made: Callable[..., Chat]) -> None:
    events: list[Any] = [plain(0, "half"), EngineError("llama.cpp gave up")]
    chat = made(ScriptedSession([events, script([plain(0, "whole")])]))
    assert ask(chat, "go") == "half"
    assert chat.conversation.path()[-1].reason == "interrupted"
    assert ask(chat, "again") == "whole"


def test_an_error_in_a_continuation_keeps_both_parts(made: Callable[..., Chat]) -> None:
    """On the disk too, before the error comes: a kill would lose no more."""
    gate = threading.Semaphore(0)
    scripts: list[list[Any]] = [
        script([plain(0, "first ")], "length"),
        [plain(0, "second"), plain(1, " never"), EngineError("llama.cpp gave up")],
    ]
    chat = made(ScriptedSession(scripts, gate=gate))
    gate.release()
    assert ask(chat, "go") == "first "
    turn = chat.conversation.path()[-1]
    chat.continue_answer()
    gate.release()
    wait(chat, lambda: chat.live is not None and chat.live.text == "first second")
    read = SavedChat.open(chat.saved.id, chat.saved.path.parent).conversation.turns[turn.id]
    assert (read.text, read.reason) == ("first second", "interrupted")
    assert read.token_ids[: len(turn.token_ids)] == turn.token_ids
    assert len(read.token_ids) == len(turn.token_ids) + 1
    gate.release()
    wait(chat)
    kept = chat.conversation.path()[-1]
    assert (kept.id, kept.text, kept.reason) == (turn.id, "first second never", "interrupted")
    assert len(kept.rounds) == 3


def test_an_error_before_the_first_word_keeps_the_question(made: Callable[..., Chat]) -> None:
    chat = made(ScriptedSession([[RuntimeError("a bug")], script([plain(0, "fine")])]))
    chat.send("go")
    told: list[Any] = []
    deadline = time.monotonic() + 5
    while chat.is_busy and time.monotonic() < deadline:
        told += [reply for reply, _ in chat.poll()]
    assert told[-1].is_bug
    assert "a bug" in told[-1].error
    assert [turn.text for turn in chat.conversation.path()] == ["go"]
    chat.retry()
    wait(chat)
    assert chat.conversation.path()[-1].text == "fine"


def test_a_load_that_fails_says_why_and_another_works(made: Callable[..., Chat]) -> None:
    session = ScriptedSession(failure=ModelNotFoundError("no such model"))
    chat = made(session)
    assert chat.failure == "no such model"
    with pytest.raises(InvalidOptionError, match="no such model"):
        chat.send("hello?")
    session.failure = None
    front = RecordingFrontEnd(chat)
    run_command(front, "/model other small")
    wait(chat)
    assert chat.failure is None
    assert session.request is not None
    assert (session.request.target, session.request.draft) == ("other", "small")


def test_thinking_is_timed(made: Callable[..., Chat]) -> None:
    rounds = [plain(0, "<think>"), plain(1, "hm"), plain(2, "</think>"), plain(3, "Yes")]
    chat = made(ScriptedSession([script(rounds)]))
    ask(chat, "well?")
    turn = chat.conversation.last("assistant")
    assert turn is not None
    assert turn.thinking_s is not None
    assert turn.thinking_s >= 0


def test_closing_in_the_middle_keeps_the_answer(made: Callable[..., Chat], tmp_path: Path) -> None:
    gate = threading.Semaphore(1)
    session = ScriptedSession([script([plain(0, "so far"), plain(1, " and on")])], gate=gate)
    chat = made(session)
    chat.send("go")
    wait(chat, lambda: chat.live is not None and chat.live.text == "so far")
    assert chat.close()
    assert session.is_closed
    read = SavedChat.open(chat.saved.id, tmp_path).conversation
    assert read.path()[-1].text == "so far"
    assert read.path()[-1].reason == "cancelled"


def test_figures_are_sums_of_the_rounds() -> None:
    figures = Figures()
    rounds = [round_of(0, ["a", "b"], "c"), round_of(1, ["d"], "e", rejected="x"), plain(2, "f")]
    for round_ in rounds:
        figures.add(round_)
    elapsed = sum(round_.elapsed_s for round_ in rounds)
    assert figures.n_tokens == 6
    assert figures.mean == pytest.approx(6 / elapsed)
    assert figures.acceptance == pytest.approx(3 / 4)
    assert figures.tokens_per_pass == 2.0
    assert figures.speed_up == pytest.approx(0.6 / elapsed)
    assert sum(figures.split) == pytest.approx(1.0)
    assert figures.depth == 11


def test_unmeasured_figures_are_not_made_up() -> None:
    figures = Figures()
    figures.add(plain(0, "a"))
    assert figures.acceptance is None
    figures.add(replace(round_of(1, ["a"], "b"), plain_s=None))
    assert figures.acceptance == 1.0
    figures = Figures()
    figures.add(replace(round_of(0, ["a"], "b"), plain_s=None))
    assert figures.speed_up is None


def test_plain_decoding_has_no_speed_up() -> None:
    figures = Figures()
    figures.add(plain(0, "a"))
    assert figures.speed_up is None
    figures.add(round_of(1, ["b"], "c"))
    assert figures.speed_up is not None


def test_the_end_is_no_token_of_the_answer(made: Callable[..., Chat]) -> None:
    rounds = [plain(0, "a"), plain(1, "")]
    chat = made(ScriptedSession([script(rounds, predicted_n=1)]))
    ask(chat, "go")
    turn = chat.conversation.last("assistant")
    assert turn is not None
    assert chat.figures is not None
    assert chat.figures.mean == pytest.approx(turn.timings["predicted_per_second"])


def sequences(chat: Chat) -> Sequence[str]:
    return [turn.role for turn in chat.conversation.path()]


def test_two_answers_never_run_at_once(made: Callable[..., Chat]) -> None:
    gate = threading.Semaphore(0)
    chat = made(ScriptedSession([script([plain(0, "x")])], gate=gate))
    chat.send("one")
    for call in (chat.retry, chat.continue_answer, chat.load, chat.start_over):
        with pytest.raises(BusyError):
            call()
    gate.release()
    wait(chat)
    assert sequences(chat) == ["user", "assistant"]


def test_an_answer_to_nothing_cannot_be_made_again(made: Callable[..., Chat]) -> None:
    chat = made(ScriptedSession())
    chat.conversation.add(Turn("a", None, "assistant", "out of the blue"))
    chat.conversation.add(Turn("b", "a", "assistant", "and more"))
    with pytest.raises(InvalidOptionError, match="no question yet"):
        chat.retry("b")


def test_the_time_of_the_thinking_outlives_a_continuation(made: Callable[..., Chat]) -> None:
    chat = made(ScriptedSession([script([plain(0, " it is")])]))
    chat.conversation.add(Turn("q", None, "user", "well?"))
    chat.conversation.add(
        Turn("a", "q", "assistant", "<think>hm</think>Yes", (5, 6), "length", thinking_s=12.0)
    )
    chat.continue_answer()
    wait(chat)
    turn = chat.conversation.turns["a"]
    assert turn.text == "<think>hm</think>Yes it is"
    assert turn.thinking_s == 12.0


def test_a_load_waits_until_the_tokens_are_counted(made: Callable[..., Chat]) -> None:
    """A model that is freed while a thread counts with it ends the process."""
    began, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow(ScriptedSession):
        def encode(self, prompt: Any) -> list[int]:
            began.set()
            assert go_on.wait(5)
            return super().encode(prompt)

        def close(self) -> None:
            closed.set()

    chat = made(Slow())
    counted: list[int | None] = []
    counting = threading.Thread(target=lambda: counted.append(chat.count_tokens("one two")))
    counting.start()
    assert began.wait(5)
    chat.load()
    assert not closed.wait(0.1)
    go_on.set()
    counting.join(5)
    assert closed.wait(5)
    wait(chat)
    assert counted == [2]
    assert chat.count_tokens("one two three") == 3


def test_thinking_that_is_cut_is_timed_over_both_parts(tmp_path: Path) -> None:
    now = [100.0]
    gate = threading.Semaphore(0)
    session = ScriptedSession(
        [script([plain(0, "<think>hm"), plain(1, "x")]), script([plain(0, "</think>Yes")])],
        gate=gate,
    )
    chat = Chat(
        EngineThread(session.open), ChatSettings(), SavedChat(tmp_path, "c"), clock=lambda: now[0]
    )
    try:
        chat.load()
        wait(chat)
        chat.send("well?")
        gate.release()
        wait(chat, lambda: chat.live is not None and bool(chat.live.rounds))
        now[0] += 4.0
        chat.stop()
        wait(chat)
        turn = chat.conversation.last("assistant")
        assert turn is not None
        assert turn.thinking_s == 4.0
        now[0] += 1000.0
        chat.continue_answer()
        now[0] += 3.0
        gate.release(2)
        wait(chat)
        turn = chat.conversation.last("assistant")
        assert turn is not None
        assert (turn.text, turn.thinking_s) == ("<think>hm</think>Yes", 7.0)
    finally:
        chat.close()
