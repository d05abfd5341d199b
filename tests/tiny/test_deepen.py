"""Identity layers: the same text from a deeper file."""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import pytest

from localspec.library.gguf_header import read_header
from localspec.session import Session
from tests import tiny_models

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from deepen import deepen


@pytest.mark.parametrize("times", [1, 2, 4])
def test_the_text_is_the_same_and_the_file_is_deeper(
    tiny_target: Path, tmp_path: Path, times: int
) -> None:
    path = deepen(tiny_target, tmp_path / "deep.gguf", times)
    before, after = read_header(tiny_target), read_header(path)
    assert after.metadata["llama.block_count"] == times * before.metadata["llama.block_count"]
    assert "synthetic" in after.metadata["general.name"]
    texts = []
    for file in (tiny_target, path):
        with Session(file) as session:
            result = session.complete("ab", temperature=0.0, drafter="none", max_tokens=30)
            texts.append(result.token_ids)
    assert texts[0] == texts[1]


def test_what_it_cannot_deepen_is_refused_and_leaves_nothing(
    tiny_target: Path, tmp_path: Path
) -> None:
    mamba = tiny_models.write_mamba(tmp_path / "mamba.gguf")
    with pytest.raises(ValueError, match="attn_output"):
        deepen(mamba, tmp_path / "deep.gguf", 2)
    with pytest.raises(ValueError, match="1 or more"):
        deepen(tiny_target, tmp_path / "deep.gguf", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["mamba.gguf"]


def test_zero_bytes_are_zero_in_the_usual_types() -> None:
    import numpy as np

    for name in ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32"):
        kind = gguf.GGMLQuantizationType[name]
        _, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        dtype = {"F16": np.float16, "F32": np.float32}.get(name)
        zeros = np.zeros((1, n_bytes), np.uint8) if dtype is None else np.zeros((1, 4), dtype)
        assert not gguf.dequantize(zeros, kind).any()
