"""The rooms of the house: arrows point down only, and the library does not drag in a front end."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import localspec

ROOT = Path(localspec.__file__).parent

# A room may import itself and the rooms of the lines below its own: never a neighbour, never up.
FLOORS = (
    ("cli",),
    ("tui", "bench"),
    ("chat",),
    ("session",),
    ("drafting", "control"),
    ("decoding",),
    ("sampling",),
    ("llama",),
    ("models",),
    ("gguf",),
)
FLOOR = {room: len(FLOORS) - i for i, rooms in enumerate(FLOORS) for room in rooms}
SHARED = {"errors", "jsonl_file", "processes", "visible"}  # for every room; they import none


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Dotted names below localspec that a module imports, in functions and for types too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("localspec."):
            yield (node.module or "").removeprefix("localspec.")
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("localspec."):
                    yield name.name.removeprefix("localspec.")


def test_every_module_has_a_room() -> None:
    strangers = {room(path) for path in modules()} - FLOOR.keys() - SHARED
    assert strangers == {"__init__", "__main__"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below(path: Path) -> None:
    here = room(path)
    if here in ("__init__", "__main__"):
        return
    for name in imported(path):
        there = name.split(".")[0]
        if there in SHARED or (there == here and here in FLOOR):
            continue
        assert here not in SHARED, f"{here} is for every room and imports {name}"
        assert FLOOR[there] < FLOOR[here], f"{here} imports {name}"


def test_no_module_imports_itself_by_a_circle() -> None:
    graph = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): sorted(set(imported(path)))
        for path in modules()
    }
    state: dict[str, str] = {}

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert state.get(name) != "open", f"a circle: {' -> '.join((*way, name))}"
        if name in state or name not in graph:
            return
        state[name] = "open"
        for other in graph[name]:
            visit(other, (*way, name))
        state[name] = "done"

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_llama_touches_the_engine(path: Path) -> None:
    text = path.read_text("utf-8")
    if room(path) == "llama" or path.name == "doctor.py":
        return
    assert "import llama_cpp" not in text
    assert "import ctypes" not in text


def test_importing_localspec_imports_no_front_end() -> None:
    code = (
        "import sys, localspec; localspec.load; "
        "print([m for m in ('click', 'textual', 'matplotlib', 'rich') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_every_exported_name_exists() -> None:
    for name in localspec.__all__:
        assert getattr(localspec, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = localspec.nothing  # type: ignore[attr-defined]
