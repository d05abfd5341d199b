"""The cases run on tiny models, one thread each (see tests/tiny/conftest.py)."""

from tests.tiny.conftest import no_trials, one_thread, own_costs

__all__ = ["no_trials", "one_thread", "own_costs"]
