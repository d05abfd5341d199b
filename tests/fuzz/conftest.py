"""The fuzzers run on the tiny models, as tests/tiny does."""

from tests.tiny.conftest import no_trials, one_thread, own_costs

__all__ = ["no_trials", "one_thread", "own_costs"]
