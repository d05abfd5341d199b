"""Arrows point down only, and the library does not drag in a front end."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import localspec

ROOT = Path(localspec.__file__).parent
LAYERS = [
    "grammar",
    "library",
    "llama",
    "sampling",
    "speculation",
    "chat",
    "memory_plan",
    "pair",
    "pricing",
    "own",
    "planning",
    "lending",
    "scripting",
    "inspection",
    "session",
    "talk",
    "bench",
    "tui",
    "cli",
]
SHARED = {
    "editor",
    "errors",
    "options",
    "backend",
    "visible",
    "processes",
    "plain_data",
    "plugins",
    "jsonl_file",
}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below(path: Path) -> None:
    here = layer(path)
    if here not in LAYERS:
        return
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("localspec."):
            there = (node.module or "").split(".")[1]
            if there in LAYERS:
                assert LAYERS.index(there) <= LAYERS.index(here), f"{here} imports {there}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_llama_touches_the_engine(path: Path) -> None:
    text = path.read_text("utf-8")
    if layer(path) == "llama" or path.name == "doctor.py":
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
