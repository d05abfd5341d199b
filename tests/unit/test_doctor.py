"""`localspec doctor`: the essentials are named, and what to do about what is missing."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import localspec
from localspec.cli.doctor import doctor
from localspec.llama import backend, devices


@pytest.fixture(autouse=True)
def empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def ask() -> str:
    result = CliRunner().invoke(doctor, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_essentials_are_named(empty_caches: Path) -> None:
    import llama_cpp

    output = ask()
    for essential in (
        localspec.__version__,
        f"Python {platform.python_version()}",
        f"llama-cpp-python {llama_cpp.__version__}",
        "(cpu)",
        f"{devices.physical_cores()} (physical cores",
        "GB available" if sys.platform == "linux" else "memory:",
        str(empty_caches / "cache"),
        str(empty_caches / "hub"),
        "GB free, not made yet",
    ):
        assert essential in output


def test_a_missing_pair_comes_with_the_command_and_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from localspec.models import references

    monkeypatch.setattr(references, "local_path", lambda file: None)
    assert "`localspec models pull default` fetches 1.6 GB" in ask()


def test_a_pair_on_this_machine_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from localspec.models import references

    monkeypatch.setattr(references, "local_path", lambda file: tmp_path)
    assert "qwen2.5-coder-1.5b: here" in ask()


@pytest.mark.parametrize("reason", ["a GPU and nvcc were found", backend.NO_TOOLKIT])
def test_an_idle_gpu_comes_with_the_command_that_rebuilds(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    name = "cpu" if reason == backend.NO_TOOLKIT else "cuda"
    chosen = backend.Backend(name, reason, "")
    monkeypatch.setattr(backend, "choose_backend", lambda environment: chosen)
    monkeypatch.setattr(devices, "supports_gpu_offload", lambda: False)
    output = ask()
    assert f"A GPU lies idle ({reason})" in output
    assert backend.rebuild_command("cuda") in output


def test_a_broken_engine_is_told_and_the_rest_still_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    output = ask()
    assert "engine:          does not load" in output
    assert "pip install --force-reinstall" in output
    assert "default pair:" in output


def test_physical_cores_are_within_what_the_process_may_use() -> None:
    import os

    assert 1 <= devices.physical_cores() <= (os.cpu_count() or 1)
