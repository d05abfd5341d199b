"""Damaged text files and hostile templates: read, skipped or named, within bounded time.

    python -m tests.fuzz.texts --n 2000 [--seed 1] [--only 123]

Settings (TOML), saved chats (JSON lines), bench prompts (JSON), model output (bytes), and chat
templates (jinja2). Each case is made from the seed and its number alone.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from localspec.bench.prompts import read_prompts
from localspec.chat.export import to_html, to_json, to_markdown
from localspec.chat.saved import SavedChat, list_chats
from localspec.cli.settings import default_map, read_settings
from localspec.decoding.answer import TextRelease
from localspec.errors import ChatTemplateError, LocalspecError
from localspec.session.template import ChatTemplate
from tests import tiny_models

_SECONDS = 30  # a case that takes longer hangs
_ODD = (
    "null", "-1", "1e999", "-0", "9" * 400, '""', "[]", "{}", '"\\ud800"', "true", "[[[]]]",
    '{"a": 1}', "NaN", "Infinity", '"\\u0000"', "[" * 3000 + "]" * 3000, '"' + "x" * 5000 + '"',
)  # fmt: skip
_SETTINGS = """target = "qwen2.5-coder-7b"
temperature = 0.7
n_ctx = 4096
seed = 3
exact = true
stop = ["a", "b"]

[chat]
theme = "light"
view = "inline"
"""
_PROMPTS = (
    '{"id": "a", "category": "code", "prompt": "x"}\n{"question_id": 1, "turns": ["y", "z"]}\n',
    '[{"conversations": [{"from": "human", "value": "q"}]},'
    ' {"messages": [{"role": "user", "content": "m"}]}]',
    '{"task_id": "HumanEval/0", "prompt": "def f():"}\n',
    "plain line\nanother\n",
)
_PIECES = (
    "{% for i in range(99999) %}", "{% endfor %}", "{% for m in messages %}", "{{ m.content }}",
    "{% if m.role == 'user' %}", "{% else %}", "{% endif %}", "{% set x = x ~ x %}",
    "{% set ns = namespace(x='a') %}", "{% set ns.x = ns.x + ns.x %}", "{{ 'a' * 10 ** 9 }}",
    "{{ 10 ** (10 ** 10) }}", "{{ 'x' | center(10 ** 9) }}",
    "{{ messages | tojson(indent=10**9) }}",
    "{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}", "{{ f(60) }}",
    "{{ ''.__class__.__mro__ }}", "{{ range(10 ** 9) }}", "{{ '%999999999d' % 1 }}",
    "{{ '{:999999999}'.format(1) }}", "{{ 'a'.ljust(10 ** 9) }}", "{% generation %}",
    "{% endgeneration %}", "{{ raise_exception('no') }}", "{{ strftime_now('%Y') }}", "{{", "}}",
    "{% set x %}{{ x }}{{ x }}{% endset %}", "{{ messages[0].content[:2] }}", "{% break %}",
    "{{ ['a' * 9999] * 9999 }}", "{{ range(99999) | map('center', 99999) | join }}", "{#", "\ud800",
    "{{ 'ab' | replace('a', 'b' * 999999) | replace('b', 'c' * 999999) }}",
    "{{ loop.index }}",
    "{% for a in range(999) recursive %}{{ loop(range(999)) }}{% endfor %}", "text", "\n", "\0",
)  # fmt: skip


def settings(folder: Path, dice: random.Random) -> None:
    """The settings file."""
    path = folder / "config.toml"
    path.write_bytes(_damaged(_SETTINGS.encode(), dice))
    os.environ["LOCALSPEC_CONFIG"] = str(path)
    default_map(read_settings({}))


def saved_chat(folder: Path, dice: random.Random) -> None:
    """A chat file: read, listed, exported, and written to."""
    path = folder / "chats" / "fuzz.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(_damaged(_chat(dice).encode(), dice))
    list_chats(path.parent)
    saved = SavedChat.open("fuzz", path.parent)
    found = saved.conversation
    for turn in list(found):
        found.path(turn.id)
        found.siblings(turn.id)
    found.messages(found.head)
    for write in (to_html, to_json, to_markdown):
        write(found).encode("utf-8", "replace")


def prompts(folder: Path, dice: random.Random) -> None:
    """A file of prompts for the bench."""
    path = folder / f"prompts{dice.choice(('.jsonl', '.json', '.txt', '.gz'))}"
    path.write_bytes(_damaged(dice.choice(_PROMPTS).encode(), dice))
    read_prompts(str(path))


def output(folder: Path, dice: random.Random) -> None:
    """Any bytes from a model: the stream is what decoding at once gives, cut at a stop."""
    raw = bytes(dice.choice(b"aEND\xe2\x82\xac\xf0\x9f\x98\x80\xff\xc3\x00") for _ in range(60))
    stops = dice.choice(((), ("END",), ("a", "EN"), ("\u20ac",), ("\x00\x00",)))
    release, text, at = TextRelease(stops), "", 0
    while at < len(raw):
        n = dice.randrange(1, 5)
        text += release.push(raw[at : at + n])
        at += n
    text += release.flush()
    whole = raw.decode("utf-8", "replace")
    cuts = [whole.find(stop) for stop in stops if stop in whole]
    expected = whole[: min(cuts)] if cuts else whole
    # a stop that ends first wins where another begins before it
    assert text == expected or (cuts and expected.startswith(text[: min(cuts)])), (text, expected)


class _NoMarkers:
    """The template's part of a vocabulary."""

    bos = None

    def split_markers(self, text: str) -> list[str]:
        return [text]

    def tokenize(self, text: str, *, parse_special: bool, add_bos: bool) -> list[int]:
        return list(text.encode("utf-8", "surrogatepass"))


def template(folder: Path, dice: random.Random) -> None:
    """A template of hostile pieces, or a damaged real one."""
    if dice.random() < 0.3:
        source = _damaged(tiny_models.CHATML.encode(), dice).decode("utf-8", "replace")
    else:
        source = "".join(dice.choice(_PIECES) for _ in range(dice.randrange(1, 12)))
    chat = ChatTemplate(source, _NoMarkers(), "<s>", "</s>")  # type: ignore[arg-type]
    chat.encode([{"role": "user", "content": "a" * dice.choice((1, 10_000))}])


KINDS: tuple[Callable[[Path, random.Random], None], ...] = (
    settings, saved_chat, prompts, output, template,
)  # fmt: skip


def _chat(dice: random.Random) -> str:
    rows: list[dict[str, object]] = [{"type": "chat", "version": 1, "id": "fuzz"}]
    ids = ["a", "b", "c", "d"]
    for _ in range(dice.randrange(1, 8)):
        row: dict[str, object] = {
            "type": dice.choice(("turn", "turn", "turn", "partial", "head", "system")),
            "id": dice.choice(ids),
            "parent": dice.choice((None, *ids)),
            "role": dice.choice(("user", "assistant")),
            "text": dice.choice(("hello", "", "\ud800", "<script>")),
            "token_ids": [1, 2, 3],
            "opened": False,
            "model": "m",
            "reason": "eos",
            "timings": {"predicted_n": 3, "predicted_per_second": 1.5, "draft_n_accepted": 1,
                        "draft_n_rejected": 1, "drafter": "model"},
            "rounds": [{"index": 0, "n_draft": 1, "n_accepted": 1, "text": "x", "draft_s": 0.1,
                        "verify_s": 0.1, "elapsed_s": 0.2, "worth": [None, 1.0], "tokens": [
                            {"id": 1, "text": "x", "source": "model", "verdict": "accepted",
                             "p": 0.5, "q": 0.5, "p_raw": 0.1, "q_raw": None}]}],
        }  # fmt: skip
        if dice.random() < 0.5:
            row[dice.choice(list(row))] = dice.choice((None, -1, "x", [], {}, [[]], 1e300, 10**400))
        rows.append(row)
    return "".join(json.dumps(row) + "\n" for row in rows)


def _damaged(data: bytes, dice: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(dice.choice((0, 1, 1, 2, 4))):
        at = dice.randrange(len(found) + 1)
        kind = dice.randrange(5)
        if kind == 0:
            del found[at:]
        elif kind == 1 and at < len(found):
            found[at] ^= 1 << dice.randrange(8)
        elif kind == 2:
            found[at:at] = dice.choice(_ODD).encode()
        elif kind == 3:
            found[at:at] = bytes(dice.getrandbits(8) for _ in range(4))
        else:
            del found[at : at + dice.randrange(1, 20)]
    return bytes(found)


def run(seed: int, number: int, folder: Path) -> tuple[str, str | None]:
    """One case: its kind, and what went wrong."""
    dice = random.Random(f"{seed}-{number}")
    kind = KINDS[number % len(KINDS)]
    _alarm(_SECONDS)
    try:
        kind(folder, dice)
    except ChatTemplateError as error:
        if kind is not template:
            return kind.__name__, repr(error)
    except LocalspecError:
        pass
    except BaseException:
        return kind.__name__, traceback.format_exc()
    finally:
        _alarm(0)
    return kind.__name__, None


def _alarm(seconds: int) -> None:
    """A loop without end becomes an exception, where the system has alarms."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _hangs)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _hangs(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"it takes more than {_SECONDS} s")


def main(argv: list[str] | None = None) -> int:
    """0 when nothing but named errors came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    args = parser.parse_args(argv)
    counts: collections.Counter[str] = collections.Counter()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="localspec-fuzz-") as folder:
        for number in [args.only] if args.only is not None else range(args.n):
            kind, wrong = run(args.seed, number, Path(folder))
            counts[kind] += 1
            if wrong is not None:
                failures += 1
                print(f"seed {args.seed} case {number} ({kind}): {wrong}", flush=True)
    print(f"{sum(counts.values())} cases, seed {args.seed}: {failures} failures; {dict(counts)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
