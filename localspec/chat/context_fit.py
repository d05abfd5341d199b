"""Which messages of a conversation the model is given when not all of them fit its context.

The oldest exchanges are left out first, a question together with its answers; the system
prompt and the last question always stay. Once something must go, so much goes that a third of the
space is free again, or every further question would have the whole prompt read anew. Nothing is
removed from the conversation itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.errors import ContextOverflowError

__all__ = ["FittedMessages", "answer_room", "fit"]

Messages = list[dict[str, str]]

_MOST_ROOM = 1024
_LEAST_ROOM = 16
_FILL = 2 / 3


@dataclass(frozen=True, slots=True)
class FittedMessages:
    """messages: what the template is given. first: index of the oldest message that is kept,
    the system prompt not counted. notice: what was left out now that was not before, in words.
    """

    messages: Messages
    first: int
    notice: str | None


def answer_room(n_ctx: int, max_tokens: int | None) -> int:
    """Tokens that a prompt leaves to the answer: a quarter of the context, 1,024 at most."""
    room = min(n_ctx // 4, _MOST_ROOM)
    return max(1, room if max_tokens is None else min(room, max_tokens))


def fit(
    messages: Messages,
    count: Callable[[Messages], int],
    n_ctx: int,
    *,
    room: int,
    n_continued: int = 0,
    first: int = 0,
) -> FittedMessages:
    """Leave out the oldest exchanges until the prompt leaves `room` tokens to the answer.

    count: tokens of messages, as the model is given them. n_continued: tokens of the answer that is
    continued, which follow the prompt. first: what an earlier answer had left out stays out.
    Raises ContextOverflowError when the system prompt and the last question alone do not fit.
    """
    n_system = 1 if messages and messages[0]["role"] == "system" else 0
    system, said = messages[:n_system], messages[n_system:]
    starts = [i for i, message in enumerate(said) if message["role"] == "user"] or [0]
    before = max((start for start in starts if start <= first), default=starts[0])

    def n_tokens(start: int) -> int:
        return count([*system, *said[start:]]) + n_continued

    if before == starts[0]:
        before = 0
    n_before = n_tokens(before)
    if n_before <= n_ctx - room:
        return FittedMessages([*system, *said[before:]], before, None)
    later = [start for start in starts if start > before]
    kept = _first_that_fits(later, n_tokens, round((n_ctx - room) * _FILL))
    if kept is None:
        kept = later[-1] if later else before
    n_kept = n_tokens(kept)
    if n_kept > n_ctx - min(room, _LEAST_ROOM):
        raise ContextOverflowError(_too_long(n_kept, n_ctx, n_system, n_continued))
    notice = None
    if kept > before:
        n_left_out = kept - before
        notice = (
            f"{n_left_out:,} earlier message{'s' if n_left_out > 1 else ''} "
            f"({n_before - n_kept:,} tokens) left out: the conversation had {n_before:,} tokens, "
            f"the context holds {n_ctx:,} and keeps {room:,} for the answer. "
            f"{'The system prompt is kept; ' if system else ''}--ctx-size makes it larger"
        )
    return FittedMessages([*system, *said[kept:]], kept, notice)


def _first_that_fits(
    starts: Sequence[int], n_tokens: Callable[[int], int], most: int
) -> int | None:
    """The first start from which the messages have `most` tokens or less; by halves."""
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) // 2
        if n_tokens(starts[middle]) <= most:
            high = middle
        else:
            low = middle + 1
    return starts[low] if low < len(starts) else None


def _too_long(n: int, n_ctx: int, n_system: int, n_continued: int) -> str:
    parts = ["this message"]
    if n_system:
        parts.append("the system prompt")
    if n_continued:
        parts.append("the answer so far")
    what = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return (
        f"{what} {'has' if len(parts) == 1 else 'have'} {n:,} tokens, but the context holds "
        f"{n_ctx:,} and the answer needs some: shorten the message, or raise --ctx-size"
    )
