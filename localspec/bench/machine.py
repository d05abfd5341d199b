"""What a sweep was measured on: processor, memory, system, engine, and where the power came from.

Reads what the system says about itself; changes nothing. Unknown is None, never a guess.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from localspec import __version__
from localspec.llama.devices import engine_identity, list_devices

__all__ = ["machine_row", "power_source"]


def machine_row() -> dict[str, Any]:
    """Where this process runs. cpu_info, gpu_info: as llama-bench calls them."""
    gpus = [device.description for device in list_devices() if device.kind in ("gpu", "igpu")]
    return {
        "cpu_info": _cpu(),
        "gpu_info": ", ".join(gpus),
        "n_cpus": os.cpu_count() or 1,
        "memory_bytes": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "engine": f"llama-cpp-python {engine_identity()[0]}",
        "localspec": __version__,
    }


def power_source() -> str | None:
    """`mains` or `battery`; None where the system does not say (most desktops and servers)."""
    if sys.platform == "darwin":
        said = _output("pmset", "-g", "batt")
        if "AC Power" in said:
            return "mains"
        return "battery" if "Battery Power" in said else None
    for supply in sorted(Path("/sys/class/power_supply").glob("*")):
        kind, online = _line(supply / "type"), _line(supply / "online")
        if kind == "Mains" and online in ("0", "1"):
            return "mains" if online == "1" else "battery"
    states = [_line(supply / "status") for supply in Path("/sys/class/power_supply").glob("BAT*")]
    if "Discharging" in states:
        return "battery"
    return "mains" if states else None


def _cpu() -> str:
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _output(*command: str) -> str:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout.strip()


def _line(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
