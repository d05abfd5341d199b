"""Q. The begin-of-sequence token: exactly one, on both paths."""

from __future__ import annotations

from pathlib import Path

from localspec.session.session import Session
from tests.cases.proof import shown_by
from tests.tiny.truth import write
from tests.tiny_models import BOS


def test_one_bos_in_chat_and_in_plain_text(tiny_dir: Path) -> None:
    """Whether the template writes it or the vocabulary wants it: one, and at the front."""
    with Session(write(tiny_dir, "attention")) as session:
        for ids in (
            session.encode("the end"),
            session.encode([{"role": "user", "content": "the end"}]),
        ):
            assert ids[0] == BOS
            assert ids.count(BOS) == 1
    shown_by("tiny.test_chat_template.test_there_is_exactly_one_bos")
