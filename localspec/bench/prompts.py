"""Which texts a sweep answers: the project's own suites, and files in the shapes people have.

Knows file shapes only; nothing of models or tokens. A file's shape is told by its rows, not by its
name: Spec-Bench and MT-bench (`turns`), HumanEval (`task_id`, `prompt`), ShareGPT
(`conversations`), chat requests (`messages`), our own (`id`, `category`, `prompt`), plain lines.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from localspec.errors import InvalidOptionError

__all__ = ["SUITES", "BenchPrompt", "fingerprint", "read_prompts", "select"]

_OWN = Path(__file__).with_name("prompts.jsonl")
CATEGORIES = ("code", "maths", "prose", "chat", "extraction", "summaries", "edits")
SUITES = ("quick", "all", *CATEGORIES)  # quick: the first of each category
_HUMAN = ("human", "user")
_OTHERS = ("gpt", "chatgpt", "assistant", "bing", "bard", "system")


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One text to answer. is_raw: continued as it stands, without the chat template."""

    id: str
    category: str
    text: str
    is_raw: bool = False

    @property
    def question(self) -> str | list[dict[str, str]]:
        """What Session.stream takes."""
        return self.text if self.is_raw else [{"role": "user", "content": self.text}]


def read_prompts(name: str) -> tuple[BenchPrompt, ...]:
    """A suite by its name, or a file. Raises InvalidOptionError, with the line where there is one.

    Of a conversation the first turn of the person is used, and one without any is left out.
    HumanEval's prompts are continued as raw text, as that benchmark means them.
    """
    path = Path(os.path.expanduser(name))
    is_file = os.path.isfile(path)  # False for what no file system could hold
    if name in SUITES and not is_file:
        own = _from_rows(_json_lines(_OWN.read_text("utf-8"), _OWN), _OWN)
        if name == "all":
            return own
        if name == "quick":
            return select(own, len(CATEGORIES))
        return tuple(prompt for prompt in own if prompt.category == name)
    if not is_file:
        raise InvalidOptionError(
            f"--prompts {name[:200]!r} is neither a file nor a suite: choose one of "
            f"{', '.join(SUITES)}"
        )
    text = _text(path)
    if text.lstrip()[:1] == "[":
        try:
            rows: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidOptionError(f"{path} begins like a JSON list, but: {error}") from None
        prompts = _from_rows(enumerate(rows, 1), path)
    elif text.lstrip()[:1] == "{":
        prompts = _from_rows(_json_lines(text, path), path)
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        prompts = tuple(BenchPrompt(f"line-{i}", "text", line) for i, line in enumerate(lines, 1))
    if not prompts:
        raise InvalidOptionError(f"{path} holds no prompts")
    return _unique(prompts)


def select(prompts: Sequence[BenchPrompt], n: int) -> tuple[BenchPrompt, ...]:
    """At most n of them, taken from the categories in turn, in the order of the file."""
    by_category: dict[str, list[BenchPrompt]] = defaultdict(list)
    for prompt in prompts:
        by_category[prompt.category].append(prompt)
    longest = max(map(len, by_category.values()), default=0)
    dealt = [found[i] for i in range(longest) for found in by_category.values() if i < len(found)]
    chosen = set(dealt[:n])
    return tuple(prompt for prompt in prompts if prompt in chosen)


def fingerprint(prompts: Iterable[BenchPrompt]) -> str:
    """Equal for the same texts under the same names, in any order."""
    rows = sorted([p.id, p.category, p.text, p.is_raw] for p in prompts)
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()[:16]


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidOptionError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidOptionError(f"{path} cannot be read: {error}") from None


def _json_lines(text: str, path: Path) -> list[tuple[int, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):  # splitlines() also cuts at U+2028
        if not line.strip():
            continue
        try:
            rows.append((number, json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise InvalidOptionError(f"{path}, line {number} is not JSON: {error}") from None
    return rows


def _from_rows(rows: Iterable[tuple[int, Any]], path: Path) -> tuple[BenchPrompt, ...]:
    found = []
    for number, row in rows:
        if isinstance(row, Mapping) and _is_unasked(row):
            continue
        prompt = _prompt(number, row) if isinstance(row, Mapping) else None
        if prompt is None or not prompt.text.strip():
            raise InvalidOptionError(
                f"{path}, row {number} has no prompt: expected `prompt`, `turns`, "
                "`conversations` or `messages`"
            )
        if any("\ud800" <= char <= "\udfff" for char in prompt.text + prompt.id + prompt.category):
            raise InvalidOptionError(
                f"{path}, row {number} holds half a surrogate pair (\\ud800 to \\udfff alone), "
                "which no token can spell: remove it"
            )
        found.append(prompt)
    return tuple(found)


def _prompt(number: int, row: Mapping[str, Any]) -> BenchPrompt | None:
    name = next((row[key] for key in ("id", "question_id", "task_id") if key in row), number)
    category = str(row.get("category", "text"))
    if "task_id" in row and isinstance(row.get("prompt"), str):
        return BenchPrompt(str(name), str(row.get("category", "code")), row["prompt"], is_raw=True)
    text = _first(row)
    return BenchPrompt(str(name), category, text) if text is not None else None


def _is_unasked(row: Mapping[str, Any]) -> bool:
    """A conversation that holds no turn of the person: ShareGPT has many."""
    said = row.get("conversations")
    return (
        isinstance(said, list)
        and not any(key in row for key in ("prompt", "turns", "messages"))
        and all(isinstance(turn, Mapping) and turn.get("from") in _OTHERS for turn in said)
    )


def _first(row: Mapping[str, Any]) -> str | None:
    if isinstance(row.get("prompt"), str):
        return str(row["prompt"])
    turns = row.get("turns")
    if isinstance(turns, list) and turns and isinstance(turns[0], str):
        return turns[0]
    for key, who, what in (("conversations", "from", "value"), ("messages", "role", "content")):
        said = row.get(key)
        for turn in said if isinstance(said, list) else ():
            if isinstance(turn, Mapping) and turn.get(who) in _HUMAN:
                return _spoken(turn.get(what))
    return None


def _spoken(content: Any) -> str | None:
    """A turn's text; of content in parts, their texts. None where a part is no text."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else None


def _unique(prompts: Sequence[BenchPrompt]) -> tuple[BenchPrompt, ...]:
    """A name that was there before gets a number, and none that another row has."""
    own = {prompt.id for prompt in prompts}
    seen: set[str] = set()
    numbers: dict[str, Iterator[int]] = defaultdict(lambda: count(2))
    found = []
    for prompt in prompts:
        names = (f"{prompt.id}#{n}" for n in numbers[prompt.id])
        fresh = (name for name in names if name not in seen and name not in own)
        name = prompt.id if prompt.id not in seen else next(fresh)
        seen.add(name)
        found.append(replace(prompt, id=name))
    return tuple(found)
