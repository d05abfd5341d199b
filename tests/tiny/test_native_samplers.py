"""Each transform against llama.cpp's own sampler, on random logits: same tokens, same numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest

from localspec.llama.model import Model
from localspec.sampling.chain import adjusted, distribution
from localspec.sampling.dry import Dry, sequence_breakers
from localspec.sampling.mirostat import mirostat_law, next_mu
from localspec.sampling.params import SamplingParams
from tests import tiny_models

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
N_VOCAB = 400


def native(logits: np.ndarray, samplers: list[Any]) -> tuple[dict[int, float], int]:
    """(probability by token, the selected token or -1) after llama.cpp's samplers."""
    candidates = np.zeros(len(logits), CANDIDATE)
    candidates["id"] = np.arange(len(logits))
    candidates["logit"] = logits
    array = llama_cpp.llama_token_data_array()
    array.data = ctypes.cast(candidates.ctypes.data, llama_cpp.llama_token_data_p)
    array.size, array.selected, array.sorted = len(logits), -1, False
    for sampler in samplers:
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
        llama_cpp.llama_sampler_free(sampler)
    left = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
    chosen = array.data[array.selected].id if array.selected >= 0 else -1
    values = np.array([value for _, value in left], np.float64)
    weights = np.exp(values - values.max())
    probs = weights / weights.sum()
    found = {token: p for (token, _), p in zip(left, probs.tolist(), strict=True) if p > 0.0}
    return found, chosen


def assert_same(law: Any, expected: dict[int, float]) -> None:
    got = {int(t): float(p) for t, p in zip(law.ids, law.probs, strict=True) if p > 0.0}
    assert got.keys() == expected.keys()
    for token, p in expected.items():
        assert got[token] == pytest.approx(p, abs=1e-6)


def rows() -> Iterator[np.ndarray]:
    for seed in range(12):
        scale = (0.5, 2.0, 5.0)[seed % 3]
        yield np.random.default_rng(seed).normal(0.0, scale, N_VOCAB).astype(np.float32)


CASES: dict[str, tuple[dict[str, Any], Callable[[], list[Any]]]] = {
    "typical": ({"typical_p": 0.6}, lambda: [llama_cpp.llama_sampler_init_typical(0.6, 0)]),
    "typical narrow": ({"typical_p": 0.1}, lambda: [llama_cpp.llama_sampler_init_typical(0.1, 0)]),
    "top-n-sigma": (
        {"top_n_sigma": 1.5},
        lambda: [llama_cpp.llama_sampler_init_top_n_sigma(1.5)],
    ),
    "xtc": (
        {"xtc_probability": 1.0, "xtc_threshold": 0.02},
        lambda: [llama_cpp.llama_sampler_init_xtc(1.0, 0.02, 0, 1)],
    ),
    "xtc off": (
        {"xtc_probability": 1.0, "xtc_threshold": 0.6},
        lambda: [llama_cpp.llama_sampler_init_xtc(1.0, 0.6, 0, 1)],
    ),
    "dynamic temperature": (
        {"temperature": 0.9, "dynatemp_range": 0.5, "dynatemp_exponent": 1.3},
        lambda: [llama_cpp.llama_sampler_init_temp_ext(0.9, 0.5, 1.3)],
    ),
    "the whole chain": (
        {
            "temperature": 0.7,
            "top_k": 50,
            "typical_p": 0.9,
            "top_p": 0.9,
            "min_p": 0.02,
            "xtc_probability": 1.0,
            "xtc_threshold": 0.1,
        },
        lambda: [
            llama_cpp.llama_sampler_init_top_k(50),
            llama_cpp.llama_sampler_init_typical(0.9, 0),
            llama_cpp.llama_sampler_init_top_p(0.9, 0),
            llama_cpp.llama_sampler_init_min_p(0.02, 0),
            llama_cpp.llama_sampler_init_xtc(1.0, 0.1, 0, 1),
            llama_cpp.llama_sampler_init_temp(0.7),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_transform_is_llama_cpps(case: str) -> None:
    settings, samplers = CASES[case]
    params = SamplingParams(**{**OFF, **settings})
    for row in rows():
        expected, _ = native(row, samplers())
        assert_same(distribution(row, params, (), coin=0.0), expected)


def test_xtc_acts_below_its_probability_alone() -> None:
    params = SamplingParams(**OFF, xtc_probability=0.3, xtc_threshold=0.01)
    row = list(rows())[2]
    assert len(distribution(row, params, (), coin=0.31).ids) == N_VOCAB
    assert len(distribution(row, params, (), coin=0.29).ids) < N_VOCAB


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tiny_models.write_llama(tmp_path_factory.mktemp("s") / "t.gguf", vocab="bytes")
    with Model(Path(path)) as loaded:
        yield loaded


HISTORIES = [
    [5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7],
    [9] * 30,
    [1, 2, 3],
    [4, 5, 4, 5, 4, 5, 4],
    np.random.default_rng(5).integers(0, 4, 120).tolist(),
    np.random.default_rng(6).integers(270, 290, 200).tolist(),
    [270, 271, 272, 61, 270, 271, 272, 61, 270, 271, 272],  # 61 is byte 0x3A, a colon
    [270, 271, 61, 272, 273, 274, 270, 271, 61, 272, 273],
]


@pytest.mark.parametrize("history", HISTORIES, ids=range(len(HISTORIES)))
@pytest.mark.parametrize(
    ("allowed_length", "last_n", "breakers"),
    [(2, -1, ()), (2, 20, ()), (1, -1, ("\n", ":")), (3, 64, ("a b", ":")), (0, 50, ())],
)
def test_dry_is_llama_cpps(
    model: Model,
    history: list[int],
    allowed_length: int,
    last_n: int,
    breakers: tuple[str, ...],
) -> None:
    params = SamplingParams(
        **OFF,
        dry_multiplier=0.8,
        dry_base=1.6,
        dry_allowed_length=allowed_length,
        dry_penalty_last_n=last_n,
        dry_sequence_breakers=breakers,
    )
    texts = [breaker.encode() for breaker in breakers]
    array = (ctypes.c_char_p * max(1, len(texts)))(*texts)
    sampler = llama_cpp.llama_sampler_init_dry(
        model.vocabulary.handle, 0.8, 1.6, allowed_length, last_n if last_n > 0 else 1024,
        array, len(texts),
    )  # fmt: skip
    for token in history:
        llama_cpp.llama_sampler_accept(sampler, token)
    n = model.vocabulary.n_tokens
    row = np.random.default_rng(0).normal(0.0, 2.0, n).astype(np.float32)
    expected, _ = native(row, [sampler])
    dry = Dry(params, sequence_breakers(model.vocabulary, breakers))
    assert_same(distribution(row, params, history, dry=dry), expected)


def test_dry_sees_the_drafted_tokens_and_leaves_the_row_alone() -> None:
    params = SamplingParams(**OFF, dry_multiplier=5.0)
    row = np.zeros(10, np.float32)
    changed = adjusted(row, params, [1, 2, 3, 4, 1, 2, 3], Dry(params, {}))
    assert changed[4] < -4.0
    assert not row.any()


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_is_llama_cpps(version: int) -> None:
    """Token by token, each drawn by llama.cpp: the kept tokens, and mu behind them."""
    params = SamplingParams(temperature=0.9, mirostat=version, mirostat_tau=3.0, mirostat_eta=0.2)
    if version == 1:
        sampler = llama_cpp.llama_sampler_init_mirostat(N_VOCAB, 7, 3.0, 0.2, 100)
    else:
        sampler = llama_cpp.llama_sampler_init_mirostat_v2(7, 3.0, 0.2)
    mu = 6.0
    for row in rows():
        tempered = row / np.float32(0.9)
        kept, token = native(tempered, [llama_cpp.llama_sampler_clone(sampler)])
        law = mirostat_law(row, params, mu)
        assert_same(law, kept)
        _apply(sampler, tempered)
        mu = next_mu(mu, law, token, params)
    llama_cpp.llama_sampler_free(sampler)


def _apply(sampler: Any, logits: np.ndarray) -> None:
    candidates = np.zeros(len(logits), CANDIDATE)
    candidates["id"] = np.arange(len(logits))
    candidates["logit"] = logits
    array = llama_cpp.llama_token_data_array()
    array.data = ctypes.cast(candidates.ctypes.data, llama_cpp.llama_token_data_p)
    array.size, array.selected, array.sorted = len(logits), -1, False
    llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
