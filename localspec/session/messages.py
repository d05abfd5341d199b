"""OpenAI-style messages brought into the one form that chat templates are written for.

`content` is text or None; a list of text parts becomes their text. The arguments of an
assistant's `tool_calls` become objects where they are JSON text. Knows nothing of templates.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from localspec.errors import EmptyPromptError, InvalidOptionError

__all__ = ["Message", "Tool", "each_text", "normal_messages", "normal_tools"]

Message: TypeAlias = Mapping[str, Any]
Tool: TypeAlias = Mapping[str, Any]


def normal_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Raises InvalidOptionError for what is no message or holds more than text, and
    EmptyPromptError when there is nothing to answer.
    """
    if not messages:
        raise EmptyPromptError("there are no messages: nothing to answer")
    found = [_normal(message, i) for i, message in enumerate(messages)]
    last = found[-1]
    if last["role"] == "user" and not last["content"].strip():
        raise EmptyPromptError("the message is empty: there is nothing to answer")
    return found


def normal_tools(tools: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """Tools as {"type": "function", "function": {"name", …}}; a bare function is wrapped."""
    if tools is None or (isinstance(tools, Sequence) and not tools):
        return None
    found = []
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InvalidOptionError(
                'a tool is {"type": "function", "function": {"name": …, "description": …, '
                f'"parameters": …}}}}, not {tool!r}'
            )
        found.append({"type": "function", "function": dict(function)})
    return found


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The same structure with every text changed, keys included; lists for tuples."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {each_text(key, change): each_text(inner, change) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [each_text(inner, change) for inner in value]
    return value


def _normal(message: Any, i: int) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidOptionError(
            f"a message is {{'role': ..., 'content': ...}} with two strings, not {message!r}"
        )
    found = dict(message)
    if found["role"] == "developer":  # OpenAI's newer name
        found["role"] = "system"
    calls = found.pop("tool_calls", None)
    found["content"] = _content(found.get("content"), i, may_lack=bool(calls))
    if calls:
        found["tool_calls"] = [_call(call, i) for call in calls]
    return found


def _content(content: Any, i: int, *, may_lack: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and may_lack:
        return ""
    if isinstance(content, (list, tuple)):
        return "".join(_part(part, i) for part in content)
    raise InvalidOptionError(
        f"a message is {{'role': ..., 'content': ...}} with two strings: message {i} has "
        f"{content!r} for content"
    )


def _part(part: Any, i: int) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise InvalidOptionError(
        f"message {i} holds a part of type {kind!r}: localspec reads text only, so leave out "
        "images, sound and files"
        if kind
        else f"message {i} holds {part!r}, which is no part of a message"
    )


def _call(call: Any, i: int) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidOptionError(f"message {i} has a tool call without a function's name: {call!r}")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # else the template gets the text as it is
            arguments = json.loads(arguments)
    return {**call, "type": "function", "function": {**function, "arguments": arguments}}
