"""The thinking that Qwen3 and its like write before the answer, told from the answer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Parts", "opens_thinking", "split"]

_OPEN, _CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Parts:
    """thinking: None when there is none. is_open: the closing mark has not come yet."""

    thinking: str | None
    answer: str
    is_open: bool = False


def split(text: str, *, opened: bool = False) -> Parts:
    """Cut an answer into its parts; it may still be growing.

    opened: the prompt ended with the opening mark, as the templates of some models write it.
    """
    start = text.lstrip()
    if start.startswith(_OPEN):
        start, opened = start[len(_OPEN) :], True
    elif not opened:
        # half a mark is not shown as an answer
        return Parts(None, "" if start and _OPEN.startswith(start) else text)
    thinking, mark, answer = start.partition(_CLOSE)
    if not mark:
        return Parts(thinking.strip("\n"), "", is_open=True)
    return Parts(thinking.strip("\n"), answer.lstrip("\n"))


def opens_thinking(rendered: str) -> bool:
    """Does the rendered prompt end inside a thinking block?"""
    return rendered.rstrip().endswith(_OPEN)
