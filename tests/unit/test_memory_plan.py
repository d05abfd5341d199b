"""The draft goes before the context, the context before the error; all with figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import NotEnoughMemoryError
from localspec.gguf.footprint import Footprint, Setting, footprint
from localspec.gguf.header import GGUFHeader, read_header
from localspec.llama.memory import Gpu, Machine, free_ram
from localspec.session.memory_plan import MemoryPlan, Wanted, plan_memory
from tests import tiny_models

MB = 1 << 20
RESERVE = 256 * MB


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> GGUFHeader:
    folder = tmp_path_factory.mktemp("plan")
    return read_header(tiny_models.write_llama(folder / "m.gguf", vocab="bytes"))


def wanted(n_ctx: int = 8192, *, chosen: bool = False, layers: int = -1) -> Wanted:
    return Wanted(
        Setting(n_ctx, 512, 64),
        Setting(n_ctx, 512, 1),
        n_gpu_layers=layers,
        n_ctx_chosen=chosen,
    )


def ask(
    header: GGUFHeader, ram: int | None, *gpus: int, draft: bool = True, **how: int
) -> MemoryPlan:
    machine = Machine(ram, 64 << 30, gpus=tuple(Gpu(f"GPU{i}", n) for i, n in enumerate(gpus)))
    return plan_memory(header, header if draft else None, wanted(**how), machine)  # type: ignore[arg-type]


def test_the_price_of_weights_and_cache(header: GGUFHeader) -> None:
    price = footprint(header, Setting(1000, 512, 64, "f16", "q8_0"))
    assert price.weights == sum(t.size_bytes or 0 for t in header.tensors)
    # 1,024 cells; 2 layers of 2 heads of 16 for K and V: 2 bytes, and 34 bytes for 32
    assert price.cache == 1024 * 2 * (2 * 32 + 34)
    assert price.total == price.weights + price.cache + price.buffers
    assert len(price.layers) == len(price.cache_layers) == 2


def test_a_recurrent_state_does_not_grow_with_the_context(tmp_path: Path) -> None:
    mamba = read_header(tiny_models.write_mamba(tmp_path / "m.gguf"))
    caches = {footprint(mamba, Setting(n, 512, 1)).cache for n in (256, 8192)}
    # 3 columns of the convolution and 16 of the state for each of 128 channels, 2 layers, F32
    assert caches == {2 * 4 * (3 * 128 + 16 * 128)}


def test_a_tied_output_is_counted_twice(tmp_path: Path, header: GGUFHeader) -> None:
    from dataclasses import replace

    tied = replace(header, tensors=tuple(t for t in header.tensors if t.name != "output.weight"))
    before, after = (footprint(h, Setting(256, 256, 1)) for h in (header, tied))
    assert after.weights == before.weights


def test_what_fits_is_left_alone(header: GGUFHeader) -> None:
    plan = ask(header, 8 << 30)
    assert plan.draft is not None
    assert (plan.n_ctx, plan.notes) == (8192, ())
    assert plan.ram_bytes == plan.target.total + plan.draft.total
    assert [line.split(":")[0] for line in plan.lines()][:2] == ["target", "draft"]


def test_unknown_memory_refuses_nothing(header: GGUFHeader) -> None:
    assert ask(header, None).notes == ()


def test_the_draft_goes_before_the_context(header: GGUFHeader) -> None:
    both = ask(header, None)
    room = both.ram_bytes + RESERVE
    assert ask(header, room).draft is not None
    plan = ask(header, room - 1)
    assert plan.draft is None
    assert plan.n_ctx == 8192
    (note,) = plan.notes
    assert "the draft model is not loaded" in note
    assert f"{both.ram_bytes / 1e9:.2f} GB" in note


def test_the_context_goes_next_where_nobody_chose_it(header: GGUFHeader) -> None:
    alone = ask(header, None, draft=False)
    plan = ask(header, alone.ram_bytes + RESERVE - 1)
    assert plan.draft is None
    assert plan.n_ctx == 8192 - 256
    assert [note.split(":")[0] for note in plan.notes] == [
        "the draft model is not loaded",
        "the context is cut to 7,936 tokens",
    ]
    assert plan.fits


def test_a_chosen_context_is_not_cut(header: GGUFHeader) -> None:
    alone = ask(header, None, draft=False)
    with pytest.raises(NotEnoughMemoryError, match=r"--ctx-size 7936"):
        ask(header, alone.ram_bytes + RESERVE - 1, chosen=True)


def test_nothing_fits(header: GGUFHeader) -> None:
    with pytest.raises(NotEnoughMemoryError) as caught:
        ask(header, RESERVE + 100)
    words = str(caught.value)
    for part in ("m.gguf does not fit", "of weights", "of cache", "0.27 GB of 68.72 GB are free",
                 "smaller model", "--ignore-memory"):  # fmt: skip
        assert part in words


GPU_RESERVE = 512 * MB


def gpu_price(model: Footprint) -> int:
    return sum(model.layers) + model.output + model.cache + model.buffers


def test_a_gpu_that_holds_both_gets_both(header: GGUFHeader) -> None:
    plan = ask(header, 8 << 30, 8 << 30)
    assert (plan.n_gpu_layers, plan.n_gpu_layers_draft) == (3, 3)
    assert plan.gpu_bytes > 0
    assert plan.notes == ()


def test_a_gpu_that_holds_the_target_alone_gets_no_draft(header: GGUFHeader) -> None:
    price = gpu_price(footprint(header, wanted().target))
    plan = ask(header, 8 << 30, price + GPU_RESERVE)
    assert plan.draft is None
    assert plan.n_gpu_layers == 3
    assert "the draft model is not loaded" in plan.notes[0]


def test_where_the_target_does_not_fit_the_draft_comes_first(header: GGUFHeader) -> None:
    price = gpu_price(footprint(header, wanted().draft))
    needed = gpu_price(footprint(header, wanted().target))
    plan = ask(header, 8 << 30, max(price, needed - 1) + GPU_RESERVE)
    assert plan.n_gpu_layers_draft == 3
    assert plan.n_gpu_layers < 3
    assert "behind the draft model" in plan.notes[0]


def test_layers_that_a_person_chose_are_kept(header: GGUFHeader) -> None:
    plan = ask(header, 8 << 30, 600 * MB, layers=2)
    assert plan.n_gpu_layers == 2


def test_a_gpu_that_does_not_say_gets_what_was_asked(header: GGUFHeader) -> None:
    assert ask(header, 8 << 30, 0).n_gpu_layers == 3


def write_system(root: Path, files: dict[str, str]) -> Path:
    meminfo = "MemTotal: 16000 kB\nMemFree: 100 kB\nMemAvailable: 9000 kB\n"
    for name, text in {"proc/meminfo": meminfo, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_free_memory_of_a_machine(tmp_path: Path) -> None:
    ram = free_ram(write_system(tmp_path, {}))
    assert ram is not None
    assert (ram.free_bytes, ram.total_bytes) == (9000 * 1024, 16000 * 1024)


@pytest.mark.parametrize("group", ["/", "/a/b"])
def test_a_cgroup_bounds_it_and_its_page_cache_counts_as_free(tmp_path: Path, group: str) -> None:
    at = f"sys/fs/cgroup{group.rstrip('/')}"
    files = {
        "proc/self/cgroup": f"0::{group}\n",
        f"{at}/memory.max": "5000000",
        f"{at}/memory.current": "4000000",
        f"{at}/memory.stat": "anon 1\ninactive_file 1000000\nactive_file 500000\n",
    }
    ram = free_ram(write_system(tmp_path, files))
    assert ram is not None
    assert (ram.free_bytes, ram.total_bytes) == (2_500_000, 5_000_000)
    assert "cgroup" in ram.limit


def test_a_limit_of_an_outer_cgroup_counts_and_none_is_none(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/inner/memory.max": "max",
        "sys/fs/cgroup/outer/inner/memory.current": "1",
        "sys/fs/cgroup/outer/memory.max": "3000000",
        "sys/fs/cgroup/outer/memory.current": "1000000",
        "sys/fs/cgroup/outer/memory.stat": "",
    }
    ram = free_ram(write_system(tmp_path, files))
    assert ram is not None
    assert ram.free_bytes == 2_000_000


def test_cgroups_of_version_1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000000",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000000",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
    }
    ram = free_ram(write_system(tmp_path, files))
    assert ram is not None
    assert ram.free_bytes == 3_000_000
    (tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712")
    unlimited = free_ram(tmp_path)
    assert unlimited is not None
    assert unlimited.free_bytes == 9000 * 1024


def test_no_system_tells_nothing_about_cgroups(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    found = free_ram(tmp_path)  # what the engine knows, or nothing
    assert found is None or found.total_bytes > 0
