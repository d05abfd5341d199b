"""B. Numerics of the batch size.

On a GPU the differences are larger; the tiny models run on a CPU, `localspec audit` and the sweep
measure them where a person runs them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from localspec.session.session import Session
from tests.batch_noise import batch_noise, log_softmax
from tests.cases.proof import shown_by
from tests.tiny.truth import write

IDS = [1, *(265 + 7 * i % 40 for i in range(31))]


def test_other_batch_shapes_move_logits_within_the_tolerance(tiny_dir: Path) -> None:
    """1 × 32, 4 × 8 and 32 × 1: no log-probability moves by more than tests allow for here, and
    the best token changes only where the two best are that close."""
    with Session(write(tiny_dir, "attention")) as session:
        noise = batch_noise(session).logprob
        rows = {}
        for size in (32, 8, 1):
            session.clear_cache()
            parts = [IDS[i : i + size] for i in range(0, 32, size)]
            decoded = (row for part in parts for row in session._target.decode(part, n_rows=size))
            rows[size] = np.array([log_softmax(row) for row in decoded])
    assert rows[1].shape[0] == 32
    assert np.ptp(rows[1], axis=1).min() > 20 * noise  # the rows say something
    for size in (32, 8):
        np.testing.assert_allclose(rows[size], rows[1], rtol=0, atol=noise)
        for row, plain in zip(rows[size], rows[1], strict=True):
            best, other = int(np.argmax(plain)), int(np.argmax(row))
            assert plain[best] - plain[other] <= 2 * noise
    shown_by("tiny.test_exact_and_audit.test_probing_keeps_the_sizes_that_hold_at_every_depth")


def test_batch_settings_are_part_of_every_result() -> None:
    """Stored, and sweeps or references of other settings are refused or noted."""
    shown_by(
        "tiny.test_quality.test_other_conditions_are_noted",
        "unit.test_bench_report.test_unlike_sweeps_are_refused_with_the_reason",
    )
