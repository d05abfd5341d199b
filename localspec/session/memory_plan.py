"""What a pair needs in memory and what there is, settled before anything is loaded.

Where both models do not fit, the draft is given up before the context is cut; where the target
alone does not fit, that is an error with figures. Knows headers and figures, and loads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.errors import NotEnoughMemoryError
from localspec.gguf.footprint import Footprint, Setting, footprint
from localspec.gguf.header import GGUFHeader
from localspec.llama.memory import Machine

__all__ = ["MemoryPlan", "Wanted", "plan_memory"]

_RESERVE = 256 << 20  # bytes of RAM for Python and the rest of the process
_GPU_RESERVE = 512 << 20  # bytes of each GPU for its driver's context
_MIN_CTX, _CTX_STEP = 1024, 256


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for. n_gpu_layers negative: as many as fit. n_ctx_chosen: by a person."""

    target: Setting
    draft: Setting
    n_gpu_layers: int = -1
    n_gpu_layers_draft: int = -1
    n_ctx_chosen: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What will be loaded. draft None: no draft model. notes: what differs from what was asked.

    n_gpu_layers…: layers on GPUs, the output counted as one; 0 without a GPU.
    """

    machine: Machine
    target: Footprint
    draft: Footprint | None
    n_ctx: int
    n_gpu_layers: int = 0
    n_gpu_layers_draft: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ram_bytes(self) -> int:
        """Of RAM, both models."""
        return sum(ram for ram, _ in self._splits())

    @property
    def gpu_bytes(self) -> int:
        """Of all GPUs together, both models."""
        return sum(gpu for _, gpu in self._splits())

    @property
    def fits(self) -> bool:
        """True when the RAM suffices, or is not known. Layers are put on GPUs only as they fit."""
        free = self.machine.ram_free
        return free is None or self.ram_bytes + _RESERVE <= free

    def lines(self) -> list[str]:
        """The plan for people, one line for each model and one for the sum."""
        models = [("target", self.target), ("draft", self.draft)]
        found = [f"{role}: {_parts(model)}" for role, model in models if model is not None]
        total = f"in all {_gb(self.ram_bytes)} of RAM"
        if self.machine.ram_free is not None:
            total += f", {_gb(self.machine.ram_free)} free ({self.machine.limit})"
        if self.gpu_bytes:
            free = sum(gpu.free_bytes for gpu in self.machine.gpus)
            total += f"; {_gb(self.gpu_bytes)} of GPU memory, {_gb(free)} free"
        return [*found, f"{total}; context {self.n_ctx:,} tokens"]

    def _splits(self) -> list[tuple[int, int]]:
        models = [(self.target, self.n_gpu_layers), (self.draft, self.n_gpu_layers_draft)]
        return [_split(model, n) for model, n in models if model is not None]


def plan_memory(
    target: GGUFHeader, draft: GGUFHeader | None, wanted: Wanted, machine: Machine
) -> MemoryPlan:
    """Decide what is loaded and where. Raises NotEnoughMemoryError when the target does not fit."""
    both = MemoryPlan(
        machine,
        footprint(target, wanted.target),
        footprint(draft, wanted.draft) if draft is not None else None,
        wanted.target.n_ctx,
    )
    plan = _placed(both, wanted)
    if plan.fits:
        return plan
    notes: tuple[str, ...] = ()
    if plan.draft is not None:
        alone = _placed(replace(both, draft=None), wanted)
        notes = (
            f"the draft model is not loaded: target and draft need {_gb(plan.ram_bytes)} of RAM, "
            f"{_gb(machine.ram_free)} are free; the target alone needs {_gb(alone.ram_bytes)}",
        )
        if alone.fits:
            return replace(alone, notes=(*alone.notes, *notes))
        plan = alone
    shorter = _shorter(replace(both, draft=None), target, wanted)
    if shorter is None or wanted.n_ctx_chosen:
        raise NotEnoughMemoryError(_refusal(plan, target, shorter))
    notes += (
        f"the context is cut to {shorter.n_ctx:,} tokens: {wanted.target.n_ctx:,} need "
        f"{_gb(plan.ram_bytes)} of RAM, {_gb(machine.ram_free)} are free",
    )
    return replace(shorter, notes=(*shorter.notes, *notes))


def _shorter(plan: MemoryPlan, target: GGUFHeader, wanted: Wanted) -> MemoryPlan | None:
    """The plan with the longest context that fits, None where no useful one does."""
    most = (wanted.target.n_ctx - 1) // _CTX_STEP * _CTX_STEP
    for n_ctx in range(most, _MIN_CTX - 1, -_CTX_STEP):
        price = footprint(target, replace(wanted.target, n_ctx=n_ctx))
        tried = _placed(replace(plan, target=price, n_ctx=n_ctx), wanted)
        if tried.fits:
            return tried
    return None


def _refusal(plan: MemoryPlan, target: GGUFHeader, fitting: MemoryPlan | None) -> str:
    machine = plan.machine
    advice = "Close other programs, or choose a smaller model or quant level"
    if fitting is not None:
        advice = (
            f"A context of {fitting.n_ctx:,} tokens fits (--ctx-size {fitting.n_ctx}), a cache of "
            "q8_0 takes half (--cache-type-k, --cache-type-v); or close other programs"
        )
    return (
        f"{target.path.name} does not fit into memory: it needs {_gb(plan.ram_bytes)} of RAM "
        f"({_parts(plan.target)}), and {_gb(machine.ram_free)} of {_gb(machine.ram_total)} are "
        f"free ({machine.limit}). {advice}. --ignore-memory tries all the same"
    )


def _placed(plan: MemoryPlan, wanted: Wanted) -> MemoryPlan:
    """Layers put on the GPUs: all where they fit; else the draft's first, then the target's."""
    if not plan.machine.gpus:
        return plan
    target, draft = plan.target, plan.draft
    free = sum(max(0, gpu.free_bytes - _GPU_RESERVE) for gpu in plan.machine.gpus)
    n_all, n_draft = len(target.layers) + 1, 0
    if draft is not None:
        n_draft = _asked(wanted.n_gpu_layers_draft, len(draft.layers) + 1)
    if wanted.n_gpu_layers >= 0 or not all(gpu.free_bytes for gpu in plan.machine.gpus):
        n_target = _asked(wanted.n_gpu_layers, n_all)
        return replace(plan, n_gpu_layers=n_target, n_gpu_layers_draft=n_draft)
    left = free - (_split(draft, n_draft)[1] if draft is not None else 0)
    n_target = _most_layers(target, left)
    if n_target == n_all:
        return replace(plan, n_gpu_layers=n_all, n_gpu_layers_draft=n_draft)
    needed = _split(target, n_all)[1]
    if draft is not None and needed <= free:
        note = (
            f"the draft model is not loaded: the target needs {_gb(needed)} of GPU memory, the "
            f"draft {_gb(_split(draft, n_draft)[1])} more, and {_gb(free)} can be used"
        )
        return replace(plan, draft=None, n_gpu_layers=n_all, notes=(note,))
    first = ", behind the draft model" if n_draft else ""
    note = (
        f"{n_target} of {n_all} layers of the target are on the GPU{first}: all need "
        f"{_gb(needed)} of its memory, and {_gb(free)} can be used"
    )
    return replace(plan, n_gpu_layers=n_target, n_gpu_layers_draft=n_draft, notes=(note,))


def _asked(n: int, n_all: int) -> int:
    return n_all if n < 0 else min(n, n_all)


def _most_layers(model: Footprint, free: int) -> int:
    n_all = len(model.layers) + 1
    return next((n for n in range(n_all, 0, -1) if _split(model, n)[1] <= free), 0)


def _split(model: Footprint, n_gpu_layers: int) -> tuple[int, int]:
    """Bytes in RAM and on GPUs. The last n layers go there, and one more is the output."""
    if n_gpu_layers <= 0:
        return model.total, 0
    n_layers = len(model.layers)
    first = max(0, n_layers - n_gpu_layers)
    on_gpu = sum(model.layers[first:]) + sum(model.cache_layers[first:])
    if n_gpu_layers > n_layers:
        on_gpu += model.output
    # each side has buffers of its own for what it computes
    return model.total - on_gpu, on_gpu + model.buffers


def _parts(model: Footprint) -> str:
    return (
        f"{_gb(model.weights)} of weights, {_gb(model.cache)} of cache, {_gb(model.buffers)} of "
        "buffers"
    )


def _gb(n: int | None) -> str:
    return f"{n / 1e9:.2f} GB" if n is not None else "an unknown amount"
