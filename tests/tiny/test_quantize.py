"""What the quantiser is asked that it cannot do is told before anything is written."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.bench.levels import levels
from localspec.errors import EngineError, InvalidOptionError, LocalspecError, ModelFileError
from localspec.llama import devices
from localspec.llama import quantize as quantizing
from localspec.llama.quantize import TABLE_TYPES, quantize
from localspec.processes import environment, module_command
from tests import tiny_models
from tests.split_model import split
from tests.tiny_models import common

SLOW = ("IQ2_S", "IQ1_M")  # ggml builds their grids for seconds; they are written as the others


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of 256, which every type can cut into blocks."""
    monkeypatch.setattr(common, "N_EMBD", 256)
    monkeypatch.setattr(common, "HEAD_DIM", 64)
    return tiny_models.write_llama(tmp_path / "wide.gguf")


def write_matrix(path: Path, *names: str) -> Path:
    writer = gguf.GGUFWriter(path, "imatrix")
    for name in names:
        writer.add_tensor(f"{name}.in_sum2", np.ones((1, 256), np.float32))
        writer.add_tensor(f"{name}.counts", np.ones((1, 1), np.float32))
    return tiny_models.finish(writer, path)


def test_types_that_end_the_process_without_a_matrix_are_refused(
    wide: Path, tmp_path: Path
) -> None:
    made = tmp_path / "made.gguf"
    other = write_matrix(tmp_path / "other.gguf", "blk.0.attn_q.weight")
    for matrix in (None, other):
        with pytest.raises(InvalidOptionError, match=r"matrix that holds output\.weight"):
            quantize(wide, made, "Q8_0", output_type="iq2_xxs", importance=matrix)
        with pytest.raises(InvalidOptionError, match=r"matrix that holds token_embd\.weight"):
            quantize(wide, made, "Q8_0", embedding_type="IQ1_S", importance=matrix)
    assert not made.exists()
    whole = write_matrix(tmp_path / "whole.gguf", "output.weight")
    assert quantize(wide, made, "Q8_0", output_type="IQ2_XXS", importance=whole).quant == "Q8_0"


def test_every_type_of_a_table_is_written_or_refused(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused is what ggml would end the process for."""
    monkeypatch.setattr(quantizing, "module_command", lambda _: None)  # thirty processes less
    library = devices._library()
    if not hasattr(library, "ggml_quantize_requires_imatrix"):
        pytest.skip("this build of ggml exports no ggml_quantize_requires_imatrix")
    requires_matrix = library.ggml_quantize_requires_imatrix
    requires_matrix.restype = ctypes.c_bool
    for name, number in TABLE_TYPES.items():
        made = tmp_path / f"{name}.gguf"
        if requires_matrix(number):
            with pytest.raises(InvalidOptionError):
                quantize(wide, made, "Q8_0", output_type=name, n_threads=1)
            assert not made.exists()
        elif name not in SLOW:
            header = quantize(wide, made, "Q8_0", output_type=name, n_threads=1)
            assert {t.name: t for t in header.tensors}["output.weight"].type_name == name


def test_what_native_code_prints_is_not_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A debugger that ggml starts at its end prints pages to stdout."""
    code = (
        "import os, sys\nfrom localspec.llama import quantize\n"
        "quantize._write = lambda **given: (os.write(1, b'#0 trace'), os.abort())\n"
        "sys.exit(quantize.main())"
    )
    command = [sys.executable, "-c", code]
    assert module_command("x") is not None
    monkeypatch.setattr(quantizing, "module_command", lambda _: command)
    with pytest.raises(EngineError) as caught:
        quantizing.write_level(tmp_path / "a", tmp_path / "b", 7, 1, None)
    assert "SIGABRT" in str(caught.value)
    assert "trace" not in str(caught.value)


def test_no_part_of_the_source_is_written_over(tiny_target: Path, tmp_path: Path) -> None:
    parts = split(tiny_target, tmp_path, 2)
    before = [part.read_bytes() for part in parts]
    for destination in parts:
        with pytest.raises(ModelFileError):
            quantize(parts[0], destination, "Q8_0", overwrite=True)
    link = tmp_path / "link.gguf"
    link.hardlink_to(parts[1])
    with pytest.raises(ModelFileError, match="the same file"):
        quantize(parts[0], link, "Q8_0", overwrite=True)
    assert [part.read_bytes() for part in parts] == before
    with pytest.raises(ModelFileError, match="a part of a split model"):
        quantize(tiny_target, tmp_path / "x-00001-of-00002.gguf", "Q8_0")


def test_a_destination_that_is_no_file_is_left_alone(tiny_target: Path, tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no pipes with names")
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    with pytest.raises(ModelFileError, match="a device or a pipe"):
        quantize(tiny_target, pipe, "Q8_0", overwrite=True)
    assert pipe.is_fifo()


def test_long_names(tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (245, 300):
        with pytest.raises(LocalspecError, match="no file can be called"):
            quantize(tiny_target, tmp_path / f"{'y' * n}.gguf", "Q8_0")
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    long = tmp_path / ("ü" * 120 + ".gguf")
    long.write_bytes(tiny_target.read_bytes())
    (level,) = levels(long, "x", ["Q8_0"])
    assert level.error is None
    assert level.label == f"{long.stem} Q8_0"


def test_a_missing_matrix_is_not_the_cache_folder_s_fault(
    tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    (level,) = levels(tiny_target, "x", ["Q8_0"], importance=tmp_path)
    assert level.error is not None
    assert "there is no importance matrix" in level.error
    assert "LOCALSPEC_CACHE" not in level.error


def test_a_write_that_fails_is_told_as_one(tiny_target: Path, tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="Windows limits no file sizes")
    code = (
        "import resource, sys\nfrom pathlib import Path\n"
        "from localspec.llama.quantize import quantize\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "quantize(Path(sys.argv[1]), Path(sys.argv[2]), 'Q8_0', n_threads=1)"
    )
    command = [sys.executable, "-c", code, str(tiny_target), str(tmp_path / "made.gguf")]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert "a write failed: is there room" in ended.stderr
    assert list(tmp_path.iterdir()) == []
