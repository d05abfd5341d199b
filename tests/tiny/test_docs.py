"""Code in README and docs runs, on a tiny pair in the place of the default one."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import localspec
from localspec.session.session import Session

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

Load = Callable[..., Session]


def code_of(page: Path) -> str:
    """All blocks of a page are one program, at the lines where they stand."""
    text = page.read_text("utf-8")
    lines = [""] * (text.count("\n") + 1)
    for found in BLOCK.finditer(text):
        first = text[: found.start(1)].count("\n")
        block = found[1].splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines)


WITH_CODE = [page for page in PAGES if code_of(page).strip()]


@pytest.fixture
def tiny_load(
    tiny_dir: Path, tiny_target: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch
) -> Load:
    load = localspec.load

    def tiny(target: Any = "default", draft: Any = "auto", **options: Any) -> Session:
        assert target == "default", "an example names a model that tests do not have"
        return load(tiny_target, None if draft is None else tiny_draft, **options)

    monkeypatch.setattr(localspec, "load", tiny, raising=False)
    return tiny


def test_the_pages_that_should_have_code_have_some() -> None:
    assert {"README.md", "tutorial.md"} <= {page.name for page in WITH_CODE}


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(
    page: Path, tiny_load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(code_of(page), str(page), "exec"), {"__name__": "__main__"})
    assert shown.getvalue().strip(), "a page whose code shows nothing proves little"


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ARGUMENTS = {
    "acceptance.py": ["--out", "acceptance.png"],
    "batch.py": ["--out", "results.jsonl"],
    "forks.py": ["--state", "fable.state"],
}
SAYS = {
    "acceptance.py": "accepted",
    "batch.py": "nothing: the prompt is empty",
    "chat.py": "came from the cache",
    "async_tasks.py": "The sky is",
    "controller.py": "draft lengths: [",
    "forks.py": "once more",
    "phrase_table.py": "guesses of PhraseTable were right",
    "rerun.py": "the same ids: True",
    "stream.py": "ended by length",
    "tools.py": "no tools here",
}


def test_there_are_ten_examples_each_in_the_list() -> None:
    assert [path.name for path in EXAMPLES] == sorted(SAYS)
    told = (ROOT / "examples" / "README.md").read_text("utf-8")
    for path in EXAMPLES:
        assert f"]({path.name})" in told


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(
    path: Path,
    tiny_target: Path,
    tiny_draft: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    models = ["--target", str(tiny_target), "--draft", str(tiny_draft)]
    monkeypatch.setattr("sys.argv", [str(path), *models, *ARGUMENTS.get(path.name, [])])
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as ended:  # tools.py: the tiny template knows none, and it says so
        assert "no tools here" in str(ended)  # noqa: PT017
        print(ended)
    assert SAYS[path.name] in capsys.readouterr().out


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short_and_says_what_it_shows(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith('"""')
    assert text.count("\n") < 80
    assert '"--target", default="default"' in text


def test_the_example_drafter_fits_twenty_lines() -> None:
    text = (ROOT / "examples" / "phrase_table.py").read_text("utf-8")
    start = text.index("class PhraseTable")
    assert text[start : text.index("\n\n\n", start)].count("\n") < 20
