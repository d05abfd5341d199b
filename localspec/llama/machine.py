"""What memory this machine has for models: RAM, and GPUs where this build can use them."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.llama.devices import list_devices, supports_gpu_offload
from localspec.llama.ram import free_ram

__all__ = ["Gpu", "Machine", "this_machine"]


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
