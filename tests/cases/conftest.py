"""The cases run on tiny models, one thread each (see tests/tiny/conftest.py)."""

from tests.tiny.conftest import one_thread, own_costs

__all__ = ["one_thread", "own_costs"]
