"""Every test that docs/failure-cases.md names exists, and every line of it names one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "failure-cases.md"
NAME = re.compile(r"`([\w/]+\.py)::(\w+)`")
LINES = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("- ")]


def test_the_page_has_a_line_for_each_case() -> None:
    assert len(LINES) >= 100


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[2:50])
def test_every_line_names_a_test_that_exists(line: str) -> None:
    names = NAME.findall(line)
    assert names, f"no test is named: {line}"
    for path, test in names:
        tree = ast.parse((TESTS / path).read_text("utf-8"))
        found = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        found |= {n.name for n in tree.body if isinstance(n, ast.AsyncFunctionDef)}
        assert test.startswith("test_")
        assert test in found, f"{path} has no {test}"
