"""A setting summed up: medians, what failed, and intervals as wide as the data is."""

from __future__ import annotations

import json

import numpy as np

from localspec.bench.configuration import Configuration, median_interval, summarise
from tests.unit.bench_rows import pair_rows, unmeasured

PAIR = pair_rows("big", "small", {"plain": 10.0, "auto": 22.0, "K=3": 20.0})
RUNS = [row for row in PAIR if row["type"] == "run"]


def test_four_samples_have_no_interval() -> None:
    found = median_interval([[2.0, 2.0], [2.0, 3.0]])
    assert found is not None
    assert (found.median, found.low, found.high) == (2.0, None, None)
    assert median_interval([]) is None
    assert median_interval([[], []]) is None


def test_equal_samples_have_no_width() -> None:
    found = median_interval([[1.5]] * 6)
    assert found is not None
    assert (found.median, found.low, found.high) == (1.5, 1.5, 1.5)


def test_few_prompts_have_the_range_of_their_answers() -> None:
    found = median_interval([[1.0, 1.2, 1.1], [2.0, 2.2]])
    assert found is not None
    assert (found.median, found.low, found.high) == (1.2, 1.0, 2.2)


def test_the_same_samples_give_the_same_interval() -> None:
    clusters = [[1.0, 1.2], [2.0, 2.2], [1.6]]
    assert median_interval(clusters) == median_interval(clusters)


def test_prompts_that_differ_widen_it_more_than_repetitions() -> None:
    """Six values twice over: as prompts that differ, and as repetitions of prompts that do not."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    differ = median_interval([[v] * 6 for v in values])
    alike = median_interval([values] * 6)
    assert differ is not None
    assert alike is not None
    assert differ.low is not None
    assert differ.high is not None
    assert alike.low is not None
    assert alike.high is not None
    assert differ.high - differ.low > alike.high - alike.low


def test_it_covers_the_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(60):
        centres = rng.normal(1.0, 0.2, 20)
        found = median_interval([list(c + rng.normal(0, 0.02, 3)) for c in centres])
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.0 <= found.high
    assert hits >= 50


def test_a_row_is_read_as_it_was_written() -> None:
    for row in PAIR:
        if row["type"] == "configuration":
            found = Configuration.of_row(json.loads(json.dumps({**row, "later": 1})))
            assert found.as_row() == row


def test_answers_that_took_no_time_are_no_figures() -> None:
    still = [{**run, "avg_ns": 0, "avg_ts": 0.0} for run in RUNS]
    head = unmeasured(PAIR, setting="plain")
    assert summarise(head, still, {}, n_gen=20).error == "every answer was empty"
    assert summarise(head, [*still[2:], RUNS[0]], {}, n_gen=20).n_runs == 1


def test_answers_that_fail_are_counted_and_leave_the_rest() -> None:
    pair = next(row for row in PAIR if row["type"] == "pair")
    head = unmeasured(PAIR, setting="auto")
    bad = {"type": "run", "setting": "auto", "prompt": "z", "category": "code", "repetition": 0,
           "error": "the prompt is too long"}  # fmt: skip
    found = summarise(head, [*RUNS, bad], pair, n_gen=20)
    assert (found.n_runs, found.n_failed, found.error) == (6, 1, None)
    assert summarise(head, [bad], pair, n_gen=20).error == "the prompt is too long"


def test_llama_bench_names() -> None:
    names = set(PAIR[-1])
    assert names >= {
        *("model_filename", "model_type", "model_size", "model_n_params", "n_gpu_layers"),
        *("n_threads", "type_k", "type_v", "n_prompt", "n_gen", "test_time", "avg_ns"),
        *("stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts"),
    }
