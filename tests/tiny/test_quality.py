"""Perplexity and divergence of tiny models, against the definition in float64."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from localspec.bench import text_reader
from localspec.bench.quality import measure_divergence
from localspec.bench.reference import Reference
from localspec.bench.text_reader import Text, built_in, chunk
from localspec.errors import (
    DiskSpaceError,
    InvalidOptionError,
    ModelKindError,
    TextError,
    VocabularyMismatchError,
)
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.session.options import LoadOptions
from tests import tiny_models

TEXT = Text("sample", built_in().content[:700])
Laws = list[tuple[npt.NDArray[np.float64], int]]


def loading(n_ctx: int = 64, n_batch: int = 512, **more: object) -> LoadOptions:
    return LoadOptions(n_ctx=n_ctx, n_batch=n_batch, n_threads=1, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quality")
    return tiny_models.write_llama(folder / "target.gguf", vocab="bytes")


@pytest.fixture(scope="module")
def other(target: Path) -> Path:
    return tiny_models.write_llama(target.with_name("other.gguf"), vocab="bytes", noise=0.3)


@pytest.fixture(scope="module")
def reference(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference.record(target, TEXT, tmp_path_factory.mktemp("record"), loading=loading())


def laws(path: Path, text: Text, n_ctx: int) -> Laws:
    """(ln p of every id, the token that came), one decode for each token of each chunk."""
    found: Laws = []
    with Model(path) as model:
        context = Context(model, n_ctx=n_ctx, n_threads=1)
        ids = model.vocabulary.tokenize(text.content, cut_markers=False)
        for start in range(0, len(ids) - n_ctx + 1, n_ctx):
            context.clear()
            piece = [tiny_models.BOS, *ids[start + 1 : start + n_ctx]]
            for i, token in enumerate(piece[:-1]):
                row = context.decode([token], n_rows=1)[0].astype(np.float64)
                if i >= n_ctx // 2:
                    found.append((row - np.log(np.exp(row).sum()), piece[i + 1]))
        context.close()
    return found


def nll_of(found: Laws) -> npt.NDArray[np.float64]:
    return np.array([-log_p[token] for log_p, token in found])


@pytest.mark.parametrize(
    ("n_ctx", "n_batch", "rows_bytes"),
    [(64, 512, 1 << 20), (64, 16, 1 << 20), (64, 512, 5_000), (50, 512, 1), (256, 100, 40_000)],
)
def test_figures_are_those_of_the_definition(
    target: Path,
    other: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    n_ctx: int,
    n_batch: int,
    rows_bytes: int,
) -> None:
    monkeypatch.setattr(text_reader, "_ROWS_BYTES", rows_bytes)
    options = loading(n_ctx, n_batch)
    p, q = laws(target, TEXT, n_ctx), laws(other, TEXT, n_ctx)
    n = len(p)
    reference = Reference.record(target, TEXT, tmp_path, loading=options)
    found = measure_divergence(other, reference, loading=options)
    assert found.n_scored == reference.chunks.n_scored == n

    for perplexity, nll in ((reference.perplexity, nll_of(p)), (found.perplexity, nll_of(q))):
        assert perplexity.value == pytest.approx(np.exp(nll.mean()), rel=2e-3)
        error = np.exp(nll.mean()) * np.sqrt(((nll**2).mean() - nll.mean() ** 2) / (n - 1))
        assert perplexity.error == pytest.approx(error, rel=1e-2)

    kl = np.array([np.sum(np.exp(a) * (a - b)) for (a, _), (b, _) in zip(p, q, strict=True)])
    overlap = [np.minimum(np.exp(a), np.exp(b)).sum() for (a, _), (b, _) in zip(p, q, strict=True)]
    same = np.mean([a.argmax() == b.argmax() for (a, _), (b, _) in zip(p, q, strict=True)])
    ratio = nll_of(q) - nll_of(p)
    assert found.kl.value == pytest.approx(kl.mean(), rel=5e-3)
    assert found.kl.error == pytest.approx(kl.std() / np.sqrt(n - 1), rel=1e-2)
    assert found.kl_median == pytest.approx(np.median(kl), rel=2e-2)
    assert found.kl_p99 == pytest.approx(np.percentile(kl, 99), rel=2e-2)
    assert found.kl_max == pytest.approx(kl.max(), rel=2e-2)
    assert found.overlap.value == pytest.approx(np.mean(overlap), abs=2e-3)
    assert found.same_top.value == pytest.approx(same, abs=0.02)
    assert found.log_ppl_ratio.value == pytest.approx(ratio.mean(), abs=3e-3)
    assert found.log_ppl_ratio.error == pytest.approx(ratio.std() / np.sqrt(n - 1), rel=1e-2)
    assert found.reference_perplexity.value == pytest.approx(reference.perplexity.value, rel=1e-3)
    assert 0.2 < found.overlap.value < 0.95  # the two models do differ
    assert found.kl.value > 0.05


def test_a_model_is_at_no_distance_from_itself(target: Path, reference: Reference) -> None:
    seen: list[tuple[int, int, float]] = []
    found = measure_divergence(
        target, reference, loading=loading(), on_progress=lambda *now: seen.append(now)
    )
    assert abs(found.kl.value) < 2e-5
    assert found.kl_max < 2e-4
    assert found.overlap.value == pytest.approx(1.0, abs=1e-4)
    assert found.same_top.value == 1.0
    assert found.log_ppl_ratio.value == pytest.approx(0.0, abs=1e-4)
    assert found.perplexity == reference.perplexity
    n = reference.chunks.n_chunks
    assert [(done, total) for done, total, _ in seen] == [(i + 1, n) for i in range(n)]
    assert seen[-1][2] == found.perplexity.value


def test_fewer_chunks_can_be_read(target: Path, other: Path, tmp_path: Path) -> None:
    short = Reference.record(target, TEXT, tmp_path, loading=loading(), n_chunks=2)
    assert short.chunks.n_chunks == 2
    # an n_ctx of the load does not count: chunks are the reference's
    assert measure_divergence(other, short, loading=loading(128)).n_scored == 62
    with pytest.raises(InvalidOptionError, match="n_chunks is 0"):
        Reference.record(target, TEXT, tmp_path, n_chunks=0)


def test_other_conditions_are_noted(target: Path, other: Path, tmp_path: Path) -> None:
    narrow = Reference.record(target, TEXT, tmp_path, loading=loading(n_batch=32))
    found = measure_divergence(other, narrow, loading=loading(n_batch=64, type_k="bf16"))
    assert any(
        "n_batch 32 and 64" in note and "type_k f16 and bf16" in note for note in found.notes
    )


def test_a_short_text_is_named_with_its_numbers(target: Path, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"sample has [\d,]+ tokens, and two chunks of 4,096 need"):
        Reference.record(target, TEXT, tmp_path / "r", loading=loading(4096))
    assert not (tmp_path / "r").exists()
    with pytest.raises(InvalidOptionError, match="16 or more"):
        Reference.record(target, TEXT, tmp_path / "r", loading=loading(8))


def test_vocabularies_that_differ_are_refused(reference: Reference, tmp_path: Path) -> None:
    plain = tiny_models.write_llama(tmp_path / "plain.gguf", vocab="plain")
    with pytest.raises(VocabularyMismatchError, match=r"reference .* and model .* one vocabulary"):
        measure_divergence(plain, reference)
    altered = tiny_models.write_llama(
        tmp_path / "altered.gguf",
        vocab="bytes",
        alter_token={int(reference.chunks.ids[0, 5]): "qz"},
    )
    with pytest.raises(VocabularyMismatchError, match="the text holds token"):
        measure_divergence(altered, reference)


def test_padding_ids_count_as_absent(other: Path, reference: Reference, tmp_path: Path) -> None:
    padded = tiny_models.write_llama(
        tmp_path / "padded.gguf", vocab="bytes", noise=0.3, extra_vocab_rows=24
    )
    one = measure_divergence(other, reference, loading=loading())
    two = measure_divergence(padded, reference, loading=loading())
    assert two.kl.value == pytest.approx(one.kl.value, rel=1e-3)
    assert two.overlap.value == pytest.approx(one.overlap.value, rel=1e-3)
    wide = Reference.record(padded, TEXT, tmp_path, loading=loading())
    back = measure_divergence(other, wide, loading=loading())
    assert back.kl.value == pytest.approx(0.0, abs=1e-4)


def test_an_id_that_is_spelled_otherwise_counts_as_absent(
    reference: Reference, tmp_path: Path
) -> None:
    unused = next(i for i in range(3, 259) if not len(reference.ids_in_text(np.array([i]))))
    altered = tiny_models.write_llama(
        tmp_path / "altered.gguf", vocab="bytes", alter_token={unused: "qzq"}
    )
    found = measure_divergence(altered, reference, loading=loading())
    assert found.kl.value == pytest.approx(0.0, abs=1e-4)


def test_an_interrupted_record_leaves_no_file_and_keeps_the_earlier_one(
    target: Path, other: Path, tmp_path: Path
) -> None:
    def interrupt(done: int, total: int, perplexity: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Reference.record(target, TEXT, tmp_path, loading=loading(), on_progress=interrupt)
    assert list(tmp_path.iterdir()) == []
    Reference.record(target, TEXT, tmp_path, loading=loading())
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        Reference.record(other, TEXT, tmp_path, loading=loading(), on_progress=interrupt)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == before


def test_a_disk_that_is_too_full_is_named(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))  # type: ignore[attr-defined]
    with pytest.raises(DiskSpaceError, match=r"had 0\.00 GB free"):
        Reference.record(target, TEXT, tmp_path, loading=loading())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(target: Path) -> None:
    with pytest.raises(InvalidOptionError, match="cannot be written"):
        Reference.record(target, TEXT, target / "in a file", loading=loading())


def test_models_without_a_cut_memory_are_measured_too(tmp_path: Path) -> None:
    mamba = tiny_models.write_mamba(tmp_path / "mamba.gguf", vocab="bytes")
    recorded = Reference.record(mamba, TEXT, tmp_path, loading=loading())
    p = laws(mamba, TEXT, 64)
    assert recorded.perplexity.value == pytest.approx(np.exp(nll_of(p).mean()), rel=2e-3)


def test_a_model_that_cannot_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelKindError, match="measured"):
        Reference.record(tiny_models.write_projector(tmp_path / "p.gguf"), TEXT, tmp_path)


def test_the_training_length_is_noted(tmp_path: Path) -> None:
    short = tiny_models.write_llama(tmp_path / "short.gguf", vocab="bytes", n_ctx_train=32)
    recorded = Reference.record(short, TEXT, tmp_path, loading=loading())
    assert any("n_ctx 64" in note and "32 tokens" in note for note in recorded.notes)


def test_memory_does_not_grow_with_the_chunk(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows of a chunk of 1,024 would take 1.2 MB; eight rows at a time are allowed."""
    monkeypatch.setattr(text_reader, "_ROWS_BYTES", 8 * 4 * 400)
    text = Text("long", built_in().content[:2500])
    peaks = []
    for n_ctx in (128, 1024):
        tracemalloc.start()
        recorded = Reference.record(target, text, tmp_path, loading=loading(n_ctx))
        measure_divergence(target, recorded, loading=loading(n_ctx))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert recorded.conditions["n_rows"] == 8
    assert peaks[1] - peaks[0] < 300_000


def test_chunks_are_whole_and_half_of_each_is_scored() -> None:
    cut = chunk(list(range(100)), 32, "t")
    assert cut.ids.tolist() == [list(range(i, i + 32)) for i in (0, 32, 64)]
    assert (cut.first, cut.n_scored) == (16, 3 * 15)
