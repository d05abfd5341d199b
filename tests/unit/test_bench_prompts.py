"""Prompts: the project's own suites, and the shapes of files that people have."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from localspec.bench.prompts import CATEGORIES, SUITES, fingerprint, read_prompts, select
from localspec.errors import InvalidOptionError


def written(folder: Path, text: str, name: str = "p.jsonl") -> str:
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_has_prompts(suite: str) -> None:
    prompts = read_prompts(suite)
    assert prompts
    assert len({prompt.id for prompt in prompts}) == len(prompts)


def test_quick_is_one_prompt_of_each_category() -> None:
    assert [prompt.category for prompt in read_prompts("quick")] == list(CATEGORIES)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]},
            ("81", "writing", "Write.", False),  # Spec-Bench, MT-bench
        ),
        (
            {"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "test": ""},
            ("HumanEval/0", "code", "def f():\n", True),
        ),
        (
            {"id": "x", "conversations": [{"from": "system", "value": "s"},
                                          {"from": "human", "value": "Hi."}]},
            ("x", "text", "Hi.", False),  # ShareGPT
        ),
        ({"messages": [{"role": "user", "content": "Hi."}]}, ("1", "text", "Hi.", False)),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]},
            ("1", "text", "Hi.", False),
        ),
        ({"id": "a", "category": "c", "prompt": "Do."}, ("a", "c", "Do.", False)),
    ],
)  # fmt: skip
def test_shapes(row: object, expected: tuple[object, ...], tmp_path: Path) -> None:
    for text in (json.dumps(row) + "\n", json.dumps([row])):
        (prompt,) = read_prompts(written(tmp_path, text))
        assert (prompt.id, prompt.category, prompt.text, prompt.is_raw) == expected


def test_plain_lines_and_gzip(tmp_path: Path) -> None:
    lines = read_prompts(written(tmp_path, "First.\n\nSecond.\n", "p.txt"))
    assert [prompt.text for prompt in lines] == ["First.", "Second."]
    packed = tmp_path / "h.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"prompt": "Do."}\n'))
    assert read_prompts(str(packed))[0].text == "Do."


def test_raw_prompts_are_continued_and_others_are_messages(tmp_path: Path) -> None:
    (raw,) = read_prompts(written(tmp_path, '{"task_id": "t", "prompt": "def"}'))
    assert raw.question == "def"
    (chat,) = read_prompts(written(tmp_path, "Hello.", "p.txt"))
    assert chat.question == [{"role": "user", "content": "Hello."}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"prompt": "ok"}\n{"prompt": \n', "line 2 is not JSON"),
        ('{"prompt": "ok"}\n{"other": 1}\n', "row 2 has no prompt"),
        ('{"prompt": "  "}', "row 1 has no prompt"),
        ('{"conversations": 5}', "row 1 has no prompt"),
        ('{"messages": [{"role": "user", "content": [{"type": "image"}]}]}', "row 1 has no prompt"),
        ('{"prompt": "a \\ud800 b"}', "row 1 holds half a surrogate pair"),
        ("[1, 2", "JSON list"),
        ("", "holds no prompts"),
    ],
)
def test_a_bad_file_is_named_with_its_row(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        read_prompts(written(tmp_path, text))


def test_an_unknown_suite_names_the_known_ones() -> None:
    with pytest.raises(InvalidOptionError, match="quick, all, code"):
        read_prompts("quik")


def test_select_deals_from_the_categories_in_turn() -> None:
    chosen = select(read_prompts("all"), 9)
    assert {prompt.category for prompt in chosen} == set(CATEGORIES)
    assert len(chosen) == 9


def test_a_fingerprint_is_of_the_texts_and_not_of_their_order() -> None:
    prompts = read_prompts("quick")
    assert fingerprint(prompts) == fingerprint(reversed(prompts))
    assert fingerprint(prompts) != fingerprint(prompts[1:])


def test_repeated_names_are_told_apart(tmp_path: Path) -> None:
    rows = '{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n'
    assert [prompt.id for prompt in read_prompts(written(tmp_path, rows))] == ["a", "a#2"]


def test_a_numbered_name_is_not_one_that_another_row_has(tmp_path: Path) -> None:
    """Answers are kept by name: two prompts under one would be mixed."""
    rows = "".join(
        json.dumps({"id": name, "prompt": "x"}) + "\n" for name in ("a", "a", "a#2", "a")
    )
    names = [prompt.id for prompt in read_prompts(written(tmp_path, rows))]
    assert names == ["a", "a#3", "a#2", "a#4"]


def test_lines_of_json_end_at_line_feeds_alone(tmp_path: Path) -> None:
    row = json.dumps({"prompt": "one\u2028two\x85three"}, ensure_ascii=False)
    (prompt,) = read_prompts(written(tmp_path, row + "\r\n\r\n"))
    assert prompt.text == "one\u2028two\x85three"


def test_a_conversation_without_the_person_is_left_out(tmp_path: Path) -> None:
    """The ShareGPT file has such rows; a row that nobody can place is still an error."""
    path = tmp_path / "share.json"
    rows = [
        {"id": "empty", "conversations": []},
        {"id": "half", "conversations": [{"from": "gpt", "value": "and so on"}]},
        {"id": "whole", "conversations": [{"from": "human", "value": "hello"}]},
    ]
    path.write_text(json.dumps(rows))
    assert [prompt.id for prompt in read_prompts(str(path))] == ["whole"]
    path.write_text(json.dumps([*rows, {"conversations": [{"from": "martian", "value": "x"}]}]))
    with pytest.raises(InvalidOptionError, match="row 4 has no prompt"):
        read_prompts(str(path))
    path.write_text(json.dumps(rows[:2]))
    with pytest.raises(InvalidOptionError, match="holds no prompts"):
        read_prompts(str(path))


def test_a_name_that_is_on_every_row_costs_no_more_than_once_a_row(tmp_path: Path) -> None:
    path = tmp_path / "same.jsonl"
    n = 30_000  # a search from the first number for each would take minutes
    path.write_text('{"id": "x", "prompt": "hello"}\n' * n)
    found = read_prompts(str(path))
    assert (found[-1].id, len({prompt.id for prompt in found})) == (f"x#{n}", n)
