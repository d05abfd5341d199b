"""The public surface: what is promised is there, documented, and does not change unnoticed."""

from __future__ import annotations

import dataclasses
import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import localspec
from localspec import errors

ROOT = Path(__file__).parents[2]


def public() -> list[tuple[str, Any]]:
    return [(name, getattr(localspec, name)) for name in localspec.__all__]


def test_all_is_sorted_and_every_name_has_a_home() -> None:
    assert list(localspec.__all__) == sorted(localspec.__all__, key=lambda n: (n[0].islower(), n))
    homes = [name for names in localspec._HOMES.values() for name in names]
    assert sorted(homes) == sorted(localspec.__all__)
    assert set(localspec.__all__) <= set(dir(localspec))


def test_every_error_can_be_imported_from_localspec() -> None:
    assert set(errors.__all__) <= set(localspec.__all__)
    for name in errors.__all__:
        kind = getattr(localspec, name)
        assert issubclass(kind, localspec.LocalspecError)
        assert kind.__doc__


@pytest.mark.parametrize(("name", "thing"), public(), ids=[name for name, _ in public()])
def test_every_public_thing_has_a_docstring_and_so_have_its_methods(name: str, thing: Any) -> None:
    if name == "Event":
        return  # a union
    assert inspect.getdoc(thing), name
    for member_name in dir(thing) if inspect.isclass(thing) else ():
        member = inspect.getattr_static(thing, member_name)
        is_own = not member_name.startswith("_") and not issubclass(thing, Exception)
        kinds = (property, classmethod)
        if is_own and (inspect.isfunction(member) or isinstance(member, kinds)):
            assert inspect.getdoc(member), f"{name}.{member_name}"


@pytest.mark.parametrize("kind", ["Options", "LoadOptions", "Completion", "Recipe", "Answered"])
def test_options_and_results_are_frozen(kind: str) -> None:
    thing = getattr(localspec, kind)
    assert dataclasses.is_dataclass(thing)
    assert thing.__dataclass_params__.frozen
    assert hasattr(thing, "__slots__")


def test_options_are_keyword_only() -> None:
    for kind in (localspec.Options, localspec.LoadOptions):
        with pytest.raises(TypeError):
            kind(5)


def test_the_reference_is_fresh() -> None:
    """`python docs/api.py` writes it."""
    made = runpy.run_path(str(ROOT / "docs" / "api.py"))["page"]()
    assert (ROOT / "docs" / "api.md").read_text("utf-8") == made, "run `python docs/api.py`"


def test_the_surface_is_typed() -> None:
    assert (ROOT / "localspec" / "py.typed").exists()
    for name in ("load", "to_dict", "to_json"):
        assert "return" in inspect.get_annotations(getattr(localspec, name))


def test_importing_localspec_is_cheap() -> None:
    """No engine before the first use."""
    code = "import sys, localspec; print('llama_cpp' in sys.modules, 'numpy' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "False"]
