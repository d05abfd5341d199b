"""A conversation as Markdown, JSON, or one self-contained HTML page that shows draft tokens."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.chat.conversation import Conversation
from localspec.chat.thinking import split
from localspec.errors import SavedChatError
from localspec.session.marks import LEGEND, figures, mark_all, marked

__all__ = ["FORMATS", "export", "to_html", "to_json", "to_markdown"]


def to_markdown(conversation: Conversation) -> str:
    """The branch that is read now; thinking is left out."""
    parts = [f"# {conversation.title() or 'A chat'}"]
    if conversation.system:
        parts.append(f"## System\n\n{conversation.system}")
    for turn in conversation.path():
        who = "You" if turn.role == "user" else turn.model or "Model"
        text = turn.text if turn.role == "user" else split(turn.text, opened=turn.opened).answer
        parts.append(f"## {who}\n\n{text.strip()}")
    return "\n\n".join(parts) + "\n"


def to_json(conversation: Conversation) -> str:
    """The branch that is read now: messages as every chat API takes them, and what they took."""
    turns = []
    for turn in conversation.path():
        row: dict[str, Any] = {"role": turn.role, "content": turn.text}
        if turn.role == "assistant":
            row |= {"reason": turn.reason, "model": turn.model, "timings": turn.timings}
            row["tokens"] = [asdict(mark) for mark in mark_all(turn.rounds)]
        turns.append(row)
    system = conversation.system
    if system:
        turns.insert(0, {"role": "system", "content": system})
    return json.dumps({"messages": turns}, ensure_ascii=False, indent=1) + "\n"


def to_html(conversation: Conversation) -> str:
    """One page without scripts or anything fetched; accepted and rejected tokens are marked."""
    title = html.escape(conversation.title() or "A chat")
    body = [f"<h1>{title}</h1>", LEGEND]
    if conversation.system:
        body.append(_section("system", "System", html.escape(conversation.system)))
    for turn in conversation.path():
        if turn.role == "user":
            body.append(_section("user", "You", html.escape(turn.text)))
        else:
            below = figures(turn.timings, turn.reason)
            answer = marked(mark_all(turn.rounds), turn.text)
            body.append(_section("model", turn.model or "Model", answer, below))
    return _PAGE.format(title=title, style=_STYLE, body="\n".join(body))


FORMATS: dict[str, Callable[[Conversation], str]] = {
    ".md": to_markdown,
    ".json": to_json,
    ".html": to_html,
}


def export(conversation: Conversation, path: Path, *, overwrite: bool = False) -> Path:
    """Write the file; its ending picks the format. Raises SavedChatError with what to do."""
    try:
        path = path.expanduser()
        exists = path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # "~nobody", too long, no permission
        raise SavedChatError(f"{path} cannot be written: {error}") from None
    write = FORMATS.get(path.suffix.lower())
    if write is None:
        raise SavedChatError(f"{path.name} ends in none of {', '.join(FORMATS)}: choose one")
    if not conversation.path():
        raise SavedChatError("there is nothing to export yet")
    if exists and not overwrite:
        raise SavedChatError(f"{path} exists: choose another name")
    try:
        path.write_text(write(conversation), "utf-8", errors="replace")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise SavedChatError(f"{path} cannot be written: {error}") from None
    return path


def _section(kind: str, who: str, text: str, below: str = "") -> str:
    return f'<section class="{kind}"><h2>{html.escape(who)}</h2><pre>{text}</pre>{below}</section>'


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --model: #1a7f37; --ngram: #0969da; --no: #b35900 }
@media (prefers-color-scheme: dark) {
  :root { --model: #5fd787; --ngram: #6cb6ff; --no: #e0a060 }
}
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif }
section { border-top: 1px solid var(--line); padding: .5rem 0 }
h2 { font-size: .9rem; margin: .3rem 0; opacity: .7 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.5 ui-monospace, monospace }
.user pre { font-weight: 600 }
.model pre span.model, p span.model { color: var(--model); text-decoration: underline }
.model pre span.ngram, p span.ngram { color: var(--ngram); text-decoration: underline dotted }
del { color: var(--no); opacity: .8 }
.figures { font-size: .85rem; opacity: .8 }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{style}</style></head>
<body>
{body}
</body></html>
"""
