"""Calls of tools that a model wrote, in the style of Hermes and Qwen2.5.

    <tool_call>
    {"name": "weather", "arguments": {"city": "Rome"}}
    </tool_call>

Source: the chat template of Qwen2.5-Instruct. Anything else is left as text: nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.llama.vocabulary import Vocabulary

__all__ = [
    "MARKERS",
    "SplitText",
    "ToolCall",
    "assistant_message",
    "spelled",
    "split_tool_calls",
]

MARKERS = ("<tool_call>", "</tool_call>")
_OPENED = re.compile(r"<tool_call>\s*")
_CLOSED = re.compile(r"\s*</tool_call>")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call. arguments: a JSON object. id: `call_0`, `call_1`, … within the answer."""

    id: str
    name: str
    arguments: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As in OpenAI's API, with the arguments as JSON text."""
        text = json.dumps(self.arguments, ensure_ascii=False)
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": text},
        }


@dataclass(frozen=True, slots=True)
class SplitText:
    """content: the text around the calls; a call that is not understood stays in it."""

    content: str
    calls: tuple[ToolCall, ...]


def split_tool_calls(text: str) -> SplitText:
    """The calls of an answer, in order, and the rest of its text."""
    calls: list[ToolCall] = []
    kept: list[str] = []
    at = 0
    for opened in _OPENED.finditer(text):
        if opened.start() < at:
            continue  # within the arguments of a call
        found = _call(text, opened.end(), len(calls))
        if found is None:
            continue
        call, end = found
        calls.append(call)
        kept.append(text[at : opened.start()])
        at = end
    kept.append(text[at:])
    content = "".join(kept)
    return SplitText(content.strip() if calls else content, tuple(calls))


def assistant_message(split: SplitText, text: str) -> dict[str, Any]:
    """{"role": "assistant", …} as OpenAI's API has it; content is None for calls alone."""
    if not split.calls:
        return {"role": "assistant", "content": text}
    return {
        "role": "assistant",
        "content": split.content or None,
        "tool_calls": [call.to_dict() for call in split.calls],
    }


def _call(text: str, at: int, index: int) -> tuple[ToolCall, int] | None:
    """The call whose JSON begins at `at`, and where it is closed."""
    try:
        given, end = _DECODER.raw_decode(text, at)
        name, arguments = given["name"], given.get("arguments", {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    closed = _CLOSED.match(text, end)
    if closed is None or not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return ToolCall(f"call_{index}", name, arguments), closed.end()


def spelled(token_ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """The text of an answer with the markers of calls in it; empty where text shows them anyway.

    Some vocabularies make them control tokens, which add nothing to a text.
    """
    hidden = {
        token: marker.encode()
        for marker in MARKERS
        if (token := vocabulary.markers.get(marker)) is not None and not vocabulary.piece(token)
    }
    if hidden.keys().isdisjoint(token_ids):
        return ""
    pieces = (hidden.get(token) or vocabulary.piece(token) for token in token_ids)
    return b"".join(pieces).decode("utf-8", "replace")
