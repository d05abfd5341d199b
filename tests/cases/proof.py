"""References from a case to the test that shows it; a name that does not exist fails."""

from __future__ import annotations

import importlib

__all__ = ["shown_by"]


def shown_by(*names: str) -> None:
    """names: `tiny.test_engine.test_budget`, below `tests`. AssertionError for a wrong one."""
    for name in names:
        module, _, test = name.rpartition(".")
        found = getattr(importlib.import_module(f"tests.{module}"), test, None)
        assert callable(found), f"tests.{name} is no test"
        assert test.startswith("test_"), f"tests.{name} is not run by pytest"
