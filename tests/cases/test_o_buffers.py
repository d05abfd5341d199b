"""O. Memory of logits and Python buffers."""

from __future__ import annotations

from pathlib import Path

from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests.cases.proof import shown_by
from tests.tiny.truth import write


def test_rows_are_bounded_whatever_the_context(tiny_dir: Path) -> None:
    """No array of n_ctx × vocabulary: 64 rows for the target, one for the draft."""
    paths = write(tiny_dir, "attention"), write(tiny_dir, "attention", noise=0.1)
    with Session(*paths, LoadOptions(n_ctx=32_768)) as session:
        assert session._draft is not None
        assert session._target.max_rows == 64
        assert session._draft.max_rows == 1
        n_floats = session._target.max_rows * session._target.n_vocab
        assert n_floats < 32_768 * session._target.n_vocab // 100


def test_quality_is_measured_in_chunks() -> None:
    """Rows become log-likelihoods chunk by chunk."""
    shown_by("tiny.test_quality.test_memory_does_not_grow_with_the_chunk")
