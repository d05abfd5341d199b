"""What the engine can compute on, and how many threads make sense."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.llama.native import init_backend

__all__ = ["Device", "engine_identity", "list_devices", "physical_cores", "supports_gpu_offload"]

_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accelerator"}  # ggml-backend.h, device types


@dataclass(frozen=True, slots=True)
class Device:
    """kind: cpu, gpu, igpu or accelerator. Sizes in bytes, 0 where the backend does not say."""

    name: str
    description: str
    kind: str
    free_bytes: int
    total_bytes: int


def supports_gpu_offload() -> bool:
    """True when this build of llama.cpp can put layers on a GPU that it sees."""
    init_backend()
    return bool(llama_cpp.llama_supports_gpu_offload())


def list_devices() -> tuple[Device, ...]:
    """Every device that ggml registered."""
    init_backend()
    lib = _library()
    if lib is None:
        return ()
    lib.ggml_backend_dev_count.restype = ctypes.c_size_t
    lib.ggml_backend_dev_get.restype = ctypes.c_void_p
    lib.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    return tuple(
        _device(lib, ctypes.c_void_p(lib.ggml_backend_dev_get(i)))
        for i in range(lib.ggml_backend_dev_count())
    )


@functools.cache
def engine_identity() -> tuple[str, ...]:
    """The engine's build and the devices: what measured speeds and bits are true of."""
    system = (llama_cpp.llama_print_system_info() or b"").decode("utf-8", "replace")
    return (llama_cpp.__version__, system, *(device.description for device in list_devices()))


def physical_cores() -> int:
    """Physical cores that this process may use (affinity and topology), at least 1."""
    if sys.platform == "darwin":
        for name in ("hw.perflevel0.physicalcpu", "hw.physicalcpu"):
            count = _sysctl(name)
            if count:
                return count
    try:
        allowed = sorted(os.sched_getaffinity(0))
    except AttributeError:
        return max(1, (os.cpu_count() or 2) // 2)
    cores = {_core_of(cpu) for cpu in allowed}
    return max(1, min(len(cores), _cpu_quota() or len(cores)))


def _device(lib: Any, handle: ctypes.c_void_p) -> Device:
    for name in ("name", "description"):
        getattr(lib, f"ggml_backend_dev_{name}").restype = ctypes.c_char_p
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    lib.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    return Device(
        (lib.ggml_backend_dev_name(handle) or b"").decode("utf-8", "replace"),
        (lib.ggml_backend_dev_description(handle) or b"").decode("utf-8", "replace"),
        _KINDS.get(int(lib.ggml_backend_dev_type(handle)), "accelerator"),
        free.value,
        total.value,
    )


def _library() -> Any:
    """The loaded library that exports ggml's device list; it differs between platforms."""
    folder = Path(llama_cpp.__file__).parent / "lib"
    names = ("*ggml.so*", "*ggml.dylib", "*ggml.dll", "*ggml-base*", "*llama.*")
    for path in (path for name in names for path in sorted(folder.glob(name))):
        try:
            lib = ctypes.CDLL(str(path))
            if hasattr(lib, "ggml_backend_dev_count"):
                return lib
        except OSError:
            continue
    return None


def _core_of(cpu: int) -> tuple[str, str]:
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        package = (folder / "physical_package_id").read_text().strip()
        return package, (folder / "core_id").read_text().strip()
    except OSError:
        return "cpu", str(cpu)


def _cpu_quota() -> int | None:
    """Whole cores of a container's quota (cgroup v2, then v1), None where there is none."""
    root = Path("/sys/fs/cgroup")
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join((root / file).read_text() for file in files).split()
            if int(quota) > 0:
                return max(1, int(quota) // int(period))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return None


def _sysctl(name: str) -> int | None:
    try:
        return int(subprocess.run(["sysctl", "-n", name], capture_output=True).stdout)
    except (OSError, ValueError):
        return None
