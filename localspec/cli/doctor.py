"""`localspec doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localspec import __version__
from localspec.errors import LocalspecError
from localspec.visible import visible

if TYPE_CHECKING:
    from localspec.llama.devices import Device

__all__ = ["doctor"]


@click.command()
@click.argument("model", required=False)
@click.argument("draft", required=False)
def doctor(model: str | None, draft: str | None) -> None:
    """Versions, devices, memory, caches, and whether the default pair is here.

    With MODEL, and perhaps DRAFT (paths or names): whether they can be loaded here, and what
    memory that takes.
    """
    for name, value in _facts():
        _print(name, value)
    if model is not None:
        for name, value in _asked(model, draft):
            _print(name, value)


def _print(name: str, value: str) -> None:
    click.echo(visible(f"{name + ':':<16} {value}"))


def _facts() -> list[tuple[str, str]]:
    version = f"{__version__}, Python {platform.python_version()} on {sys.platform}"
    return [("localspec", version), *_engine(), *_storage(), *_models()]


def _engine() -> list[tuple[str, str]]:
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:  # a broken build raises any of them
        from localspec.llama.backend import choose_backend, rebuild_command

        command = rebuild_command(choose_backend({}).name)
        return [("engine", f"does not load ({error}); build it again with:\n  {command}")]
    engine = llama_cpp.llama_version().decode("utf-8", "replace")
    versions = f"llama-cpp-python {llama_cpp.__version__}, llama.cpp {engine}"
    return [("engine", versions), *_compute()]


def _compute() -> list[tuple[str, str]]:
    from localspec.llama.backend import NO_TOOLKIT, choose_backend, rebuild_command
    from localspec.llama.devices import list_devices, physical_cores, supports_gpu_offload

    facts = [
        ("device", f"{d.name}: {d.description} ({d.kind}){_memory(d)}") for d in list_devices()
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

    from localspec.models.made_levels import levels_folder
    from localspec.models.mirror import cache_folder
    from localspec.models.stored_costs import costs_folder

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
    from localspec.models.catalog import catalog
    from localspec.models.references import local_path

    pair = catalog().pair("default")
    assert pair is not None
    here = [local_path(file) for file in (pair.target, pair.draft)]
    missing = [
        file for file, path in zip((pair.target, pair.draft), here, strict=True) if path is None
    ]
    if not missing:
        return [("default pair", f"{pair.name}: here"), *_priced(*here)]
    size = sum(file.size_bytes or 0 for file in missing) / 1e9
    return [
        (
            "default pair",
            f"{pair.name}: {len(missing)} of 2 files missing; `localspec models pull default` "
            f"fetches {size:.1f} GB",
        )
    ]


def _priced(target: Path | None, draft: Path | None) -> list[tuple[str, str]]:
    """What loading them would take; nothing is loaded."""
    try:
        from localspec.gguf.header import read_header
        from localspec.session.options import LoadOptions
        from localspec.session.pair import plan_pair
    except (ImportError, OSError, RuntimeError):  # an engine that does not load: told above
        return []
    assert target is not None
    try:
        header = read_header(draft) if draft is not None else None
        plan = plan_pair(read_header(target), header, LoadOptions())
    except LocalspecError as error:
        return [("memory plan", str(error))]
    return [("memory plan", line) for line in (*plan.lines(), *plan.notes)]


def _asked(model: str, draft: str | None) -> Iterator[tuple[str, str]]:
    """The models of the command line, checked and tried as a load would; its errors come out."""
    from localspec.cli.models_commands import present_files
    from localspec.llama.probe import vetted_header

    paths = present_files(model)
    if draft is not None:
        paths = [paths[0], present_files(draft)[-1]]
    for path, role in zip(paths, ("target", "draft"), strict=False):
        notes: list[str] = []
        header = vetted_header(path, role, notes)
        words = f"{header.name}, {header.quant}: can be loaded"
        yield role, "; ".join([words, *notes])
    yield from _priced(paths[0], paths[1] if len(paths) > 1 else None)


def _system_memory() -> str:
    from localspec.llama.memory import free_ram

    try:
        ram = free_ram()
    except (ImportError, OSError, RuntimeError):
        ram = None
    if ram is None:
        return "unknown on this system"
    return f"{ram.free_bytes / 1e9:.1f} of {ram.total_bytes / 1e9:.1f} GB available ({ram.limit})"


def _memory(device: Device) -> str:
    if device.kind == "cpu" or not device.total_bytes:  # the engine calls all of the RAM free
        return ""
    return f", {device.free_bytes / 1e9:.1f} of {device.total_bytes / 1e9:.1f} GB free"
