"""V. Low memory with the second model.

- The drafter treated as required: the rule is enumerated in tests/unit/test_memory_plan.py; below a
  pair is loaded where the target alone has room.
- The draft loader opened the target's path: below.
- Unloading does not give memory back: below; on a GPU the same closes run (no GPU here).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli.main import cli
from localspec.errors import NotEnoughMemoryError
from localspec.gguf.header import read_header
from localspec.llama.memory import Machine
from localspec.session import pair
from localspec.session.options import LoadOptions
from localspec.session.session import Session

RESERVE = 256 << 20


def room_for(monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    machine = Machine(n_bytes + RESERVE, 1 << 40)
    monkeypatch.setattr(pair, "this_machine", lambda: machine)


def test_the_draft_is_given_up_and_it_is_said(
    tiny_target: Path, tiny_draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = LoadOptions(n_ctx=512)
    headers = read_header(tiny_target), read_header(tiny_draft)
    both = pair.plan_pair(*headers, options, Machine(None))
    room_for(monkeypatch, both.ram_bytes - 1)
    with Session(tiny_target, tiny_draft, options) as session:
        assert not session.has_draft_model
        assert session.n_ctx == 512
        found = session.complete([1, 4, 5], max_tokens=4, temperature=0)
        assert found.stats.predicted_n == 4
        assert any("the draft model is not loaded: target and draft need" in note
                   for note in found.stats.notes)  # fmt: skip


def test_a_target_without_room_is_a_named_error(
    tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_for(monkeypatch, 1000)
    with pytest.raises(NotEnoughMemoryError, match="does not fit into memory"):
        Session(tiny_target)
    Session(tiny_target, options=LoadOptions(ignore_memory=True)).close()


def test_the_draft_that_is_loaded_is_the_draft(tiny_target: Path, tiny_draft: Path) -> None:
    with Session(tiny_target, tiny_draft) as session:
        assert session.draft_path == tiny_draft
        assert session.notes == []
    with Session(tiny_target, tiny_target) as session:
        assert "the draft is the target's own file: it cannot be faster" in session.notes


def test_the_plan_is_shown(tiny_target: Path, tiny_draft: Path) -> None:
    shown = CliRunner().invoke(cli, ["doctor", str(tiny_target), str(tiny_draft)])
    assert shown.exit_code == 0, shown.output
    for part in ("target:", "can be loaded", "memory plan:", "of weights", "of RAM", "free (",
                 "context 1,024 tokens"):  # fmt: skip
        assert part in shown.output


def resident() -> int:
    """Bytes of this process in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_five_loads_leave_no_growth(tiny_target: Path, tiny_draft: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("resident memory is read from /proc")
    options = LoadOptions(n_ctx=16384)  # tens of megabytes of caches and buffers
    sizes = []
    for _ in range(6):
        with Session(tiny_target, tiny_draft, options) as session:
            session.complete([1, 4, 5], max_tokens=8, n_draft=2)
            loaded = session.memory
        sizes.append(resident())
    assert loaded.draft is not None
    # the first load warms the allocator up; one that stayed would weigh as much as the plan says
    assert sizes[-1] - sizes[0] < (loaded.ram_bytes) // 2, sizes
