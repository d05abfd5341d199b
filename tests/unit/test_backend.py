"""Which backend set-up picks; no GPU, compiler or network needed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.llama import backend
from localspec.llama.backend import Backend, choose_backend, rebuild_command


def choose(
    environment: dict[str, str] | None = None,
    *,
    platform: str = "linux",
    nvcc: bool = False,
    gpu: bool = False,
) -> Backend:
    return choose_backend(
        environment or {},
        platform=platform,
        has_command=lambda name: nvcc and name == "nvcc",
        has_nvidia_gpu=lambda: gpu,
    )


@pytest.mark.parametrize(
    ("name", "cmake_args"),
    [
        ("cpu", ""),
        ("cuda", "-DGGML_CUDA=on"),
        ("vulkan", "-DGGML_VULKAN=on"),
        ("metal", "-DGGML_METAL=on"),
    ],
)
def test_BACKEND_overrides_what_the_machine_shows(name: str, cmake_args: str) -> None:
    for asked in (name, f" {name.upper()} "):
        chosen = choose({"BACKEND": asked}, nvcc=True, gpu=True)
        assert (chosen.name, chosen.cmake_args) == (name, cmake_args)


def test_an_unknown_BACKEND_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match="'rocm': choose one of cpu, cuda, vulkan, metal"):
        choose({"BACKEND": "rocm"})


def test_an_empty_BACKEND_is_no_choice() -> None:
    assert choose({"BACKEND": ""}, nvcc=True, gpu=True).name == "cuda"


@pytest.mark.parametrize(
    ("nvcc", "gpu", "name", "says"),
    [
        (True, True, "cuda", "an NVIDIA GPU and nvcc were found"),
        (True, False, "cpu", "nvcc was found, but no NVIDIA GPU"),
        (False, True, "cpu", "install the CUDA toolkit"),
        (False, False, "cpu", "no NVIDIA GPU and no nvcc"),
    ],
)
def test_cuda_needs_both_a_gpu_and_the_toolkit(nvcc: bool, gpu: bool, name: str, says: str) -> None:
    chosen = choose(nvcc=nvcc, gpu=gpu)
    assert chosen.name == name
    assert says in chosen.reason


def test_macos_takes_metal_and_its_cpu_build_turns_metal_off() -> None:
    assert choose(platform="darwin").name == "metal"
    assert choose({"BACKEND": "cpu"}, platform="darwin").cmake_args == "-DGGML_METAL=off"


def test_a_rebuild_command_survives_a_shell() -> None:
    words = shlex.split(rebuild_command("cuda", "/my envs/bin/python", platform="linux"))
    assert words[:4] == ["CMAKE_ARGS=-DGGML_CUDA=on", "/my envs/bin/python", "-m", "pip"]
    assert "--no-cache-dir" in words  # a wheel built for another backend must not come back
    assert "--force-reinstall" in words


def test_a_rebuild_command_on_windows_sets_the_variable_first() -> None:
    command = rebuild_command("vulkan", r"C:\Program Files\python.exe", platform="win32")
    assert command.startswith(
        r'set "CMAKE_ARGS=-DGGML_VULKAN=on" && "C:\Program Files\python.exe" -m pip'
    )


def test_a_rebuild_for_the_cpu_sets_nothing() -> None:
    assert rebuild_command("cpu", "python", platform="linux").startswith("python -m pip")


@pytest.mark.skipif(sys.platform != "linux", reason="macOS takes metal before it looks")
def test_the_script_runs_without_the_package_and_finds_tools_on_PATH(tmp_path: Path) -> None:
    fake(tmp_path / "nvcc", "exit 0")
    fake(tmp_path / "nvidia-smi", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'")
    ran = script({"PATH": str(tmp_path)})
    assert ran.stdout == "cuda -DGGML_CUDA=on\n"
    assert ran.stderr == "localspec: backend cuda: an NVIDIA GPU and nvcc were found\n"


def test_the_script_exits_2_for_an_unknown_BACKEND() -> None:
    ran = script({"PATH": os.environ["PATH"], "BACKEND": "rocm"})
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert "choose one of cpu, cuda, vulkan, metal" in ran.stderr


def fake(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def script(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Isolated mode without site-packages: what set-up has on a bare machine."""
    command = [sys.executable, "-I", "-S", backend.__file__]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
