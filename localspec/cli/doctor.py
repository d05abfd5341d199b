"""`localspec doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import click

from localspec import __version__
from localspec.visible import visible

__all__ = ["doctor"]


@click.command()
def doctor() -> None:
    """Versions, devices, memory, caches, and whether the default pair is here."""
    for name, value in _facts():
        click.echo(visible(f"{name + ':':<16} {value}"))


def _facts() -> list[tuple[str, str]]:
    version = f"{__version__}, Python {platform.python_version()} on {sys.platform}"
    return [("localspec", version), *_engine(), *_storage(), *_models()]


def _engine() -> list[tuple[str, str]]:
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:  # a broken build raises any of them
        from localspec.backend import choose_backend, rebuild_command

        command = rebuild_command(choose_backend({}).name)
        return [("engine", f"does not load ({error}); build it again with:\n  {command}")]
    engine = llama_cpp.llama_version().decode("utf-8", "replace")
    versions = f"llama-cpp-python {llama_cpp.__version__}, llama.cpp {engine}"
    return [("engine", versions), *_compute()]


def _compute() -> list[tuple[str, str]]:
    from localspec.backend import NO_TOOLKIT, choose_backend, rebuild_command
    from localspec.llama.devices import list_devices, physical_cores, supports_gpu_offload

    facts = [
        ("device", f"{d.name}: {d.description} ({d.kind}){_memory(d.free_bytes, d.total_bytes)}")
        for d in list_devices()
    ]
    if supports_gpu_offload():
        facts.append(("GPU offload", "yes: all layers go to the GPU unless -ngl says otherwise"))
    else:
        best = choose_backend({})
        advice = "this build computes on the CPU alone"
        if best.name != "cpu":
            advice += f". A GPU lies idle ({best.reason}); rebuild with:\n  "
            advice += rebuild_command(best.name)
        elif best.reason.endswith(NO_TOOLKIT):
            advice += f". A GPU lies idle ({best.reason}); then rebuild with:\n  "
            advice += rebuild_command("cuda")
        else:
            advice += f" ({best.reason})"
        facts.append(("GPU offload", advice))
    facts.append(("threads", f"{physical_cores()} (physical cores of this process; -t changes it)"))
    return facts


def _storage() -> list[tuple[str, str]]:
    from huggingface_hub import constants

    from localspec.library.made_levels import levels_folder
    from localspec.library.measured_costs import costs_folder
    from localspec.library.mirror import cache_folder

    facts = [("memory", _system_memory())]
    folders = {
        "hub cache": Path(constants.HF_HUB_CACHE),
        "cache": cache_folder(),
        "measured costs": costs_folder(),
        "quant levels": levels_folder(),
    }
    for name, folder in folders.items():
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free / 1e9
        state = "" if folder.exists() else ", not made yet"
        facts.append((name, f"{folder} ({free:.0f} GB free{state})"))
    return facts


def _models() -> list[tuple[str, str]]:
    from localspec.library.catalog import catalog
    from localspec.library.references import local_path

    pair = catalog().pair("default")
    assert pair is not None
    missing = [file for file in (pair.target, pair.draft) if local_path(file) is None]
    if not missing:
        return [("default pair", f"{pair.name}: here")]
    size = sum(file.size_bytes or 0 for file in missing) / 1e9
    return [
        (
            "default pair",
            f"{pair.name}: {len(missing)} of 2 files missing; `localspec models pull default` "
            f"fetches {size:.1f} GB",
        )
    ]


def _system_memory() -> str:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        try:
            total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        except (AttributeError, ValueError, OSError):
            return "unknown on this system"
        return f"{total:.1f} GB in all"
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    available, total = sizes["MemAvailable"] / 1e9, sizes["MemTotal"] / 1e9
    return f"{available:.1f} of {total:.1f} GB available (default pair: about 2.2 on a CPU)"


def _memory(free: int, total: int) -> str:
    return f", {free / 1e9:.1f} of {total / 1e9:.1f} GB free" if total else ""
