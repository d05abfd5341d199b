"""Messages to token ids, by the model's own chat template.

The template runs in a sandbox with limits on what it may compute. Text from users never becomes a
control token: where it spells a marker, the rendered prompt is cut inside it before it is
tokenised. That holds for tools, their results and the arguments of calls too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension

from localspec.errors import ChatTemplateError
from localspec.llama.vocabulary import Vocabulary
from localspec.session.messages import Message, Tool, each_text, normal_messages, normal_tools
from localspec.session.template_sandbox import BoundedEnvironment, bounded, limited

__all__ = ["ChatTemplate", "Message", "Tool"]

_PRIVATE_USE = range(0xE000, 0xF8FF)
_MAX_INDENT = 16  # of JSON in a template


class ChatTemplate:
    """The template of one model, compiled when it is first used.

    source None: the file carries no template (a base model); rendering raises.
    """

    def __init__(self, source: str | None, vocabulary: Vocabulary, bos: str, eos: str) -> None:
        self._source = source
        self._vocabulary = vocabulary
        self._bos = bos
        self._eos = eos
        self._compiled: jinja2.Template | None = None

    @property
    def writes_tool_calls(self) -> bool:
        """True when calls come as `<tool_call>` around JSON, which tool_calls.py can read."""
        return "<tool_call>" in (self._source or "")

    def encode(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> list[int]:
        """Token ids of the rendered conversation, the opening of the answer included.

        Raises ChatTemplateError when there is no template, it fails or it knows no tools,
        InvalidOptionError for malformed messages or tools, EmptyPromptError for none.
        """
        given = normal_messages(messages), self._known(normal_tools(tools))
        cut = self._unused_character(given)
        marked = each_text(given, lambda text: self._mark(text, cut))
        rendered = self._render(*marked)
        ids: list[int] = []
        for part in rendered.split(cut):
            if part:
                ids += self._vocabulary.tokenize(part, parse_special=True, add_bos=False)
        bos = self._vocabulary.bos
        if bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        """The conversation as text, for programs that tokenise it themselves."""
        return self._render(normal_messages(messages), self._known(normal_tools(tools)))

    def _known(self, tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        if tools and self._source is not None and "tools" not in self._source:
            raise ChatTemplateError(
                "this model's chat template knows no tools: describe them in the system message, "
                "or take a model that was trained to call tools"
            )
        return tools

    def _render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        template = self._compile()
        try:
            return self._apply(template, messages, tools)
        except jinja2.TemplateError as error:
            merged = _merge(messages)
            if merged == messages:
                raise ChatTemplateError(f"the chat template refused: {error}") from None
        except Exception as error:
            raise ChatTemplateError(
                f"the chat template failed: {error}. Use --raw, or another file of the model"
            ) from None
        try:  # Mistral, Gemma and others know no system role and want strict turns
            return self._apply(template, merged, tools)
        except Exception as error:
            raise ChatTemplateError(f"the chat template refused: {error}") from None

    def _apply(
        self,
        template: jinja2.Template,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
    ) -> str:
        given = {
            "messages": messages,
            "add_generation_prompt": True,
            "bos_token": self._bos,
            "eos_token": self._eos,
            "tools": tools,
        }
        n_given = len(repr(messages)) + len(repr(tools))
        return bounded(lambda: template.render(given), n_given)

    def _compile(self) -> jinja2.Template:
        if self._compiled is None:
            if self._source is None:
                raise ChatTemplateError(
                    "this file carries no chat template (a base model?): use --raw to continue "
                    "plain text, or an instruct version of the model"
                )
            source = self._source
            environment = BoundedEnvironment(
                trim_blocks=True,
                lstrip_blocks=True,
                extensions=["jinja2.ext.loopcontrols", _Generation],
            )
            environment.filters["tojson"] = limited("tojson", _tojson)
            environment.globals["raise_exception"] = _raise
            environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
            try:
                self._compiled = bounded(lambda: environment.from_string(source))
            except Exception as error:  # Python's own compiler has limits too
                raise ChatTemplateError(
                    f"the chat template does not compile: {error}. Use --raw without it"
                ) from None
        return self._compiled

    def _mark(self, content: str, cut: str) -> str:
        return cut.join(self._vocabulary.split_markers(content)) if content else content

    def _unused_character(self, given: Any) -> str:
        used = set(self._source or "")

        def note(text: str) -> str:
            used.update(text)
            return text

        each_text(given, note)
        return next(chr(c) for c in _PRIVATE_USE if chr(c) not in used)


class _Generation(Extension):
    """`{% generation %}` marks the answer for training; here it only passes its body on."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it as a plain class attribute)

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _merge(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The system text into the first user turn, neighbours of one role into one turn."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        role = "user" if message["role"] == "system" else message["role"]
        before = merged[-1] if merged else {}
        calls = "tool_calls" in message or "tool_calls" in before
        if before.get("role") == role and not calls and role != "tool":
            before["content"] += "\n\n" + message["content"]
        else:
            merged.append({**message, "role": role})
    return merged


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    if isinstance(indent, int):
        indent = min(indent, _MAX_INDENT)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
