"""Which messages stay when a conversation outgrows the context."""

from __future__ import annotations

import pytest

from localspec.chat.context_fit import answer_room, fit
from localspec.errors import ContextOverflowError

SYSTEM = {"role": "system", "content": "s " * 10}


def user(n: int) -> dict[str, str]:
    return {"role": "user", "content": "q " * n}


def answer(n: int) -> dict[str, str]:
    return {"role": "assistant", "content": "a " * n}


def words(messages: list[dict[str, str]]) -> int:
    return sum(len(message["content"].split()) for message in messages)


def test_what_fits_stays_whole() -> None:
    messages = [SYSTEM, user(20), answer(20), user(20)]
    fitted = fit(messages, words, 100, room=25)
    assert (fitted.messages, fitted.first, fitted.notice) == (messages, 0, None)


def test_the_oldest_exchanges_go_and_the_system_prompt_stays() -> None:
    messages = [SYSTEM, user(20), answer(20), user(20), answer(20), user(10)]
    fitted = fit(messages, words, 120, room=30)
    assert fitted.messages == [SYSTEM, *messages[3:]]
    assert fitted.first == 2
    assert words(fitted.messages) <= (120 - 30) * 2 / 3
    assert fitted.notice is not None
    assert "2 earlier messages (40 tokens) left out" in fitted.notice
    assert "had 100 tokens, the context holds 120 and keeps 30" in fitted.notice
    assert "system prompt is kept" in fitted.notice


def test_what_was_left_out_stays_out_and_is_told_once() -> None:
    messages = [SYSTEM, user(20), answer(20), user(20), answer(20), user(10)]
    first = fit(messages, words, 120, room=30).first
    longer = [*messages, answer(10), user(5)]
    fitted = fit(longer, words, 120, room=30, first=first)
    assert fitted.messages == [SYSTEM, *longer[3:]]
    assert fitted.notice is None


def test_an_answer_goes_with_its_question() -> None:
    messages = [user(5), answer(60), answer(60), user(5), answer(5), user(5)]
    fitted = fit(messages, words, 100, room=20)
    assert fitted.messages == messages[3:]
    assert fitted.messages[0]["role"] == "user"
    assert fitted.notice is not None
    assert "System" not in fitted.notice
    assert "system" not in fitted.notice


def test_a_long_last_question_takes_from_the_room_before_it_is_refused() -> None:
    messages = [SYSTEM, user(20), answer(20), user(70)]
    fitted = fit(messages, words, 100, room=25)
    assert fitted.messages == [SYSTEM, messages[-1]]
    with pytest.raises(ContextOverflowError, match=r"have 90 tokens.*holds 100"):
        fit([SYSTEM, user(80)], words, 100, room=25)
    with pytest.raises(ContextOverflowError, match=r"this message has 5,000 tokens.*holds 100"):
        fit([user(5000)], words, 100, room=25)


def test_a_continued_answer_counts() -> None:
    messages = [user(20), answer(20), user(20)]
    fitted = fit(messages, words, 100, room=20, n_continued=50)
    assert fitted.messages == messages[2:]
    with pytest.raises(ContextOverflowError, match="the answer so far have 120 tokens"):
        fit(messages, words, 100, room=20, n_continued=100)


@pytest.mark.parametrize("n_ctx", [256, 4096, 32768])
@pytest.mark.parametrize("n_turns", [1, 3, 20, 200])
def test_it_always_fits(n_ctx: int, n_turns: int) -> None:
    messages = [SYSTEM]
    first = 0
    room = answer_room(n_ctx, None)
    n_notices = 0
    for i in range(n_turns):
        messages.append(user(10 + i % 30))
        fitted = fit(messages, words, n_ctx, room=room, first=first)
        first = fitted.first
        n_notices += fitted.notice is not None
        assert words(fitted.messages) <= n_ctx - room
        assert fitted.messages[0] is SYSTEM
        assert fitted.messages[-1] is messages[-1]
        messages.append(answer(40))
    dropped = words(messages) > n_ctx
    assert (n_notices > 0) is dropped or not dropped
    if n_ctx > 256:  # three exchanges fit there: something goes every other turn
        assert n_notices <= n_turns // 2


def test_the_room_for_an_answer() -> None:
    assert answer_room(8192, None) == 1024
    assert answer_room(256, None) == 64
    assert answer_room(8192, 100) == 100
    assert answer_room(8192, 0) == 1
