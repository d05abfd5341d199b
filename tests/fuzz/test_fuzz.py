"""A bounded run of each fuzzer; the long ones are commands (see the modules).

Each in a process of its own: the GGUF fuzzer forks, and that wants a process without threads.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny_models
from tests.fuzz.mutate import fields, mutated

ROOT = Path(__file__).parents[2]


def run(module: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *args],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def test_damaged_models_are_loaded_or_named() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("it needs fork, which this system lacks")
    ended = run("tests.fuzz.gguf", "--n", "150", "--seed", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "150 files" in ended.stdout


def test_damaged_texts_and_hostile_templates_are_read_or_named() -> None:
    ended = run("tests.fuzz.texts", "--n", "400", "--seed", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_case_repeats_and_a_mutation_changes_something(tmp_path: Path) -> None:
    data = tiny_models.write_llama(tmp_path / "m.gguf", vocab="bytes").read_bytes()
    found, end = fields(data)
    assert {"version", "tensors", "llama.block_count", "offset of output.weight"} <= {
        field.name for field in found
    }
    assert found[-1].at + found[-1].size == end
    first = [mutated(data, random.Random(f"1-{i}"))[0] for i in range(40)]
    assert first == [mutated(data, random.Random(f"1-{i}"))[0] for i in range(40)]
    assert sum(damaged != data for damaged in first) > 35
