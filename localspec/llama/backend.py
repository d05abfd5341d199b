"""Which llama.cpp backend to build for this machine, and why.

Standard library only: `python3 localspec/llama/backend.py` runs before anything is installed. It
prints the name and the CMake arguments on stdout, the reason on stderr.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Backend", "choose_backend", "rebuild_command"]

CMAKE_ARGS = {
    "cpu": "",
    "cuda": "-DGGML_CUDA=on",
    "vulkan": "-DGGML_VULKAN=on",
    "metal": "-DGGML_METAL=on",
}

NO_TOOLKIT = "install the CUDA toolkit to use it"


@dataclass(frozen=True)
class Backend:
    """name: cpu, cuda, vulkan or metal. reason: one clause, to be shown."""

    name: str
    reason: str
    cmake_args: str


def choose_backend(
    environment: Mapping[str, str],
    *,
    platform: str = sys.platform,
    has_command: Callable[[str], bool] = lambda name: shutil.which(name) is not None,
    has_nvidia_gpu: Callable[[], bool] | None = None,
) -> Backend:
    """BACKEND if it is set, else what the machine shows. Raises ValueError for another name."""
    asked = environment.get("BACKEND", "").strip().lower()
    if asked:
        if asked not in CMAKE_ARGS:
            raise ValueError(f"BACKEND is {asked!r}: choose one of {', '.join(CMAKE_ARGS)}")
        return _backend(asked, "BACKEND says so", platform)
    if platform == "darwin":
        return _backend("metal", "this is macOS", platform)
    gpu = (has_nvidia_gpu or nvidia_gpu)()
    nvcc = has_command("nvcc")
    if gpu and nvcc:
        return _backend("cuda", "an NVIDIA GPU and nvcc were found", platform)
    if gpu:
        why = f"an NVIDIA GPU was found, but no nvcc: {NO_TOOLKIT}"
    elif nvcc:
        why = "nvcc was found, but no NVIDIA GPU"
    else:
        why = "no NVIDIA GPU and no nvcc were found; BACKEND=vulkan builds for other GPUs"
    return _backend("cpu", why, platform)


def rebuild_command(
    backend: str, python: str = sys.executable, *, platform: str = sys.platform
) -> str:
    """The command that builds llama-cpp-python again for a backend.

    On Windows it is for cmd.exe, not for PowerShell.
    """
    args = _cmake_args(backend, platform)
    if platform == "win32":
        prefix, python = f'set "CMAKE_ARGS={args}" && ', f'"{python}"'
    else:
        prefix, python = f'CMAKE_ARGS="{args}" ', shlex.quote(python)
    return (
        f"{prefix if args else ''}{python} -m pip install --force-reinstall --no-deps "
        '--no-cache-dir --no-binary llama-cpp-python "llama-cpp-python>=0.3.36,<0.4"'
    )


def nvidia_gpu() -> bool:
    """True when the driver lists an NVIDIA GPU."""
    if Path("/dev/nvidia0").exists():
        return True
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU 0" in listed.stdout


def _cmake_args(name: str, platform: str) -> str:
    if name == "cpu" and platform == "darwin":
        return "-DGGML_METAL=off"
    return CMAKE_ARGS[name]


def _backend(name: str, reason: str, platform: str) -> Backend:
    return Backend(name, reason, _cmake_args(name, platform))


def _main() -> None:
    try:
        backend = choose_backend(os.environ)
    except ValueError as error:
        print(f"localspec: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"localspec: backend {backend.name}: {backend.reason}", file=sys.stderr)
    print(backend.name, backend.cmake_args)


if __name__ == "__main__":
    _main()
