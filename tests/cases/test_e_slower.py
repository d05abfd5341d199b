"""E. Drafts that are slower than the baseline."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localspec.chat.engine_protocol import Generate, OpenPair
from localspec.chat.engine_thread import EngineThread
from localspec.decoding.events import Event, Finished
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests.cases.proof import shown_by
from tests.scripted_chat import ScriptedSession, plain, script
from tests.tiny.truth import write


def test_drafts_end_where_they_no_longer_pay() -> None:
    """No fixed window: the expected gain ends a draft, and a draft that never pays is not fed."""
    shown_by(
        "unit.test_expected_value.test_near_the_best_fixed_length_and_never_slower_than_plain",
        "unit.test_expected_value.test_where_nothing_can_pay_nothing_is_drafted",
        "unit.test_expected_value.test_a_draft_that_promises_too_much_is_found_out",
        "tiny.test_adaptive.test_where_a_model_cannot_pay_it_is_never_fed",
    )


def test_the_break_even_is_predicted_from_measured_costs() -> None:
    """The draft's step, the target's step and its batches are timed; acceptance counts by depth."""
    shown_by(
        "unit.test_economics.test_break_even_is_where_the_speed_is_plain",
        "unit.test_economics.test_a_draft_that_is_too_slow_is_told_what_would_do",
        "unit.test_economics.test_a_target_whose_batches_cost_too_much_is_told_so",
        "unit.test_economics.test_depth_counts",
    )


def test_the_cache_of_the_draft_is_f16(tiny_dir: Path) -> None:
    """Not a quantised one, which costs acceptance. One type serves both models, and every sweep
    stores it; a sweep over cache types of the draft alone is not offered."""
    paths = write(tiny_dir, "attention"), write(tiny_dir, "attention", noise=0.1)
    load = LoadOptions()
    assert load.type_k is None
    assert load.type_v is None
    with Session(*paths, load) as session:
        assert session.loaded.type_k == session.loaded.type_v == "f16"


def test_a_front_end_that_reads_nothing_does_not_hold_the_decoding_up() -> None:
    """The whole answer is made while nobody takes its events."""
    finished = threading.Event()

    class Finishing(ScriptedSession):
        def stream(self, prompt: Any, **options: Any) -> Iterator[Event]:
            for event in super().stream(prompt, **options):
                if isinstance(event, Finished):
                    finished.set()
                yield event

    rounds = [plain(i, f" {i}") for i in range(2_000)]
    engine = EngineThread(Finishing([script(rounds)]).open)
    try:
        engine.open(OpenPair("/models/big.gguf", None, {}))
        engine.generate(Generate("a", [{"role": "user", "content": "hi"}], {}))
        assert finished.wait(20)
    finally:
        assert engine.close()
