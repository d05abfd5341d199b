"""How much memory this machine has for models: RAM, the limits of its containers, and GPUs."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from localspec.llama.devices import list_devices, supports_gpu_offload

__all__ = ["Gpu", "Machine", "Ram", "free_ram", "this_machine"]


@dataclass(frozen=True, slots=True)
class Ram:
    """Bytes. limit: what sets the bound, such as `this machine` or `a container (cgroup)`."""

    free_bytes: int
    total_bytes: int
    limit: str = "this machine"


def free_ram(root: Path = Path("/")) -> Ram | None:
    """The smallest of what the machine and its cgroups leave; None where neither can be asked.

    root: where /proc and /sys/fs/cgroup lie. The page cache counts as free: the system gives it
    up.
    """
    bounds = [found for found in (_machine(root), *_cgroups(root)) if found is not None]
    return min(bounds, key=lambda ram: ram.free_bytes, default=None)


def _machine(root: Path) -> Ram | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return _darwin() if sys.platform == "darwin" else _by_engine()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
    total = sizes.get("MemTotal", 0)
    free = sizes.get("MemAvailable", sizes.get("MemFree", 0) + sizes.get("Cached", 0))
    return Ram(free, total) if total else None


def _cgroups(root: Path) -> list[Ram]:
    """Every limit on the way up from this process's group; v2, then v1 (kernel docs, cgroup-v2)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        base = root / "sys/fs/cgroup"
        files = ("memory.max", "memory.current", "inactive_file", "active_file")
        if number != "0":
            if "memory" not in controllers.split(","):
                continue
            base /= "memory"
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                     "total_active_file")  # fmt: skip
        group = base / path.lstrip("/")
        # in a container the path can name folders that only the host sees: its own are at the top
        for folder in (group, *group.parents):
            limit = _limit(folder, files)
            if limit is not None:
                found.append(limit)
            if folder == base:
                break
    return found


def _limit(folder: Path, files: tuple[str, str, str, str]) -> Ram | None:
    most, used, *caches = files
    try:
        limit = int((folder / most).read_text())
        current = int((folder / used).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such file, or "max"
        return None
    if limit >= 1 << 60:  # v1 writes a huge number where there is no limit
        return None
    reclaimable = sum(int(stat.get(name, 0)) for name in caches)
    free = max(0, limit - max(0, current - reclaimable))
    return Ram(free, limit, "a container's limit (cgroup)")


def _darwin() -> Ram | None:
    try:
        said = subprocess.run(["vm_stat"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return _by_engine()
    page = re.search(r"page size of (\d+)", said)
    counts = dict(re.findall(r"^(Pages [\w ]+):\s+(\d+)", said, re.MULTILINE))
    names = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")
    free = sum(int(counts.get(name, 0)) for name in names) * int(page[1] if page else 4096)
    known = _by_engine()
    return Ram(free, known.total_bytes if known else free) if free else known


def _by_engine() -> Ram | None:
    """ggml's own figures: right on Windows, elsewhere all of the memory counts as free."""
    from localspec.llama.devices import list_devices  # needs an engine that loads

    cpu = next((device for device in list_devices() if device.kind == "cpu"), None)
    return Ram(cpu.free_bytes, cpu.total_bytes) if cpu and cpu.total_bytes else None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that layers can be put on; free memory in bytes, 0 where it is unknown."""

    name: str
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is. ram_free None: unknown, so that nothing is refused for it."""

    ram_free: int | None
    ram_total: int | None = None
    limit: str = "this machine"
    gpus: tuple[Gpu, ...] = ()


def this_machine() -> Machine:
    """As it is now. GPUs that this build cannot compute on are left out."""
    ram = free_ram()
    gpus: tuple[Gpu, ...] = ()
    if supports_gpu_offload():
        kinds = {device.kind for device in list_devices()}
        kind = "gpu" if "gpu" in kinds else "igpu"  # llama.cpp takes one sort only
        gpus = tuple(Gpu(d.name, d.free_bytes) for d in list_devices() if d.kind == kind)
    if ram is None:
        return Machine(None, gpus=gpus)
    return Machine(ram.free_bytes, ram.total_bytes, ram.limit, gpus)
