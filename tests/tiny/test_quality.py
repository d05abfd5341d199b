"""Perplexity and divergence of tiny models, against the definition in float64."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from localspec.bench import text_reader as reader_module
from localspec.bench.quality import Quality, measure_quality
from localspec.bench.reference import Reference
from localspec.bench.text_reader import Chunks, Text, built_in, chunk
from localspec.errors import (
    CancelledError,
    DiskSpaceError,
    InvalidOptionError,
    ModelKindError,
    TextError,
    VocabularyMismatchError,
)
from localspec.llama.context import CancelFlag, Context
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
    monkeypatch.setattr(reader_module, "_ROWS_BYTES", rows_bytes)
    options = loading(n_ctx, n_batch)
    p, q = laws(target, TEXT, n_ctx), laws(other, TEXT, n_ctx)
    n = len(p)
    reference = Reference.record(target, TEXT, tmp_path, loading=options)
    found = measure_quality(other, TEXT, reference=reference, loading=options)
    assert found.n_scored == reference.chunks.n_scored == n

    for perplexity, nll in ((reference.perplexity, nll_of(p)), (found.perplexity, nll_of(q))):
        assert perplexity.value == pytest.approx(np.exp(nll.mean()), rel=2e-3)
        error = np.exp(nll.mean()) * np.sqrt(((nll**2).mean() - nll.mean() ** 2) / (n - 1))
        assert perplexity.error == pytest.approx(error, rel=1e-2)

    kl = np.array([np.sum(np.exp(a) * (a - b)) for (a, _), (b, _) in zip(p, q, strict=True)])
    overlap = [np.minimum(np.exp(a), np.exp(b)).sum() for (a, _), (b, _) in zip(p, q, strict=True)]
    same = np.mean([a.argmax() == b.argmax() for (a, _), (b, _) in zip(p, q, strict=True)])
    ratio = nll_of(q) - nll_of(p)
    divergence = found.divergence
    assert divergence is not None
    assert divergence.kl.value == pytest.approx(kl.mean(), rel=5e-3)
    assert divergence.kl.error == pytest.approx(kl.std() / np.sqrt(n - 1), rel=1e-2)
    assert divergence.kl_median == pytest.approx(np.median(kl), rel=2e-2)
    assert divergence.kl_p99 == pytest.approx(np.percentile(kl, 99), rel=2e-2)
    assert divergence.kl_max == pytest.approx(kl.max(), rel=2e-2)
    assert divergence.overlap.value == pytest.approx(np.mean(overlap), abs=2e-3)
    assert divergence.same_top.value == pytest.approx(same, abs=0.02)
    assert divergence.log_ppl_ratio.value == pytest.approx(ratio.mean(), abs=3e-3)
    assert divergence.log_ppl_ratio.error == pytest.approx(ratio.std() / np.sqrt(n - 1), rel=1e-2)
    assert divergence.reference_perplexity.value == pytest.approx(
        reference.perplexity.value, rel=1e-3
    )
    assert 0.2 < divergence.overlap.value < 0.95  # the two models do differ
    assert divergence.kl.value > 0.05


def test_a_model_is_at_no_distance_from_itself(target: Path, tmp_path: Path) -> None:
    reference = Reference.record(target, TEXT, tmp_path, loading=loading())
    found = measure_quality(target, TEXT, reference=reference, loading=loading()).divergence
    assert found is not None
    assert abs(found.kl.value) < 2e-5
    assert found.kl_max < 2e-4
    assert found.overlap.value == pytest.approx(1.0, abs=1e-4)
    assert found.same_top.value == 1.0
    assert found.log_ppl_ratio.value == pytest.approx(0.0, abs=1e-4)


def test_without_a_reference_there_is_perplexity_alone(target: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, float]] = []
    found = measure_quality(
        target, TEXT, loading=loading(), on_progress=lambda *now: seen.append(now)
    )
    assert found.divergence is None
    assert [(done, total) for done, total, _ in seen] == [
        (i + 1, found.n_chunks) for i in range(found.n_chunks)
    ]
    assert seen[-1][2] == found.perplexity.value
    assert found.conditions.n_ctx == 64
    recorded = Reference.record(target, TEXT, tmp_path, loading=loading())
    assert replace(Quality.of_reference(recorded), seconds=found.seconds) == found
    as_json = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert as_json["perplexity"]["value"] == found.perplexity.value
    assert as_json["conditions"]["n_batch"] == 256  # cut to what the engine can hold


def test_fewer_chunks_can_be_read(target: Path, other: Path, tmp_path: Path) -> None:
    reference = Reference.record(target, TEXT, tmp_path, loading=loading(), n_chunks=3)
    assert reference.chunks.n_chunks == 3
    found = measure_quality(other, TEXT, reference=reference, loading=loading(), n_chunks=2)
    assert (found.n_chunks, found.n_scored) == (2, 62)
    plain = measure_quality(other, TEXT, loading=loading(), n_chunks=2)
    assert plain.perplexity == found.perplexity
    with pytest.raises(InvalidOptionError, match="n_chunks is 0"):
        measure_quality(other, TEXT, n_chunks=0)


def test_a_reference_is_found_again(target: Path, other: Path, tmp_path: Path) -> None:
    recorded = Reference.record(target, TEXT, tmp_path, loading=loading())
    opened = Reference.open(tmp_path)
    assert np.array_equal(opened.chunks.ids, recorded.chunks.ids)
    assert replace(opened, chunks=recorded.chunks) == recorded
    first, second = (
        measure_quality(other, TEXT, reference=reference, loading=LoadOptions(n_threads=1))
        for reference in (recorded, opened)
    )
    assert replace(second, seconds=first.seconds) == first


def test_a_reference_that_cannot_be_used_is_refused(target: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(target.read_bytes())
    with pytest.raises(InvalidOptionError, match="record it again"):
        Reference.open(tmp_path)
    Reference.record(model, TEXT, tmp_path, loading=loading())
    rows = tmp_path / "reference.kld"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:-2])
    with pytest.raises(InvalidOptionError, match="bytes and should have"):
        Reference.open(tmp_path)
    rows.write_bytes(b"something else")
    with pytest.raises(InvalidOptionError, match="holds no log-probabilities"):
        Reference.open(tmp_path)
    rows.write_bytes(whole)
    model.write_bytes(b"another model")
    with pytest.raises(InvalidOptionError, match="has changed since"):
        Reference.open(tmp_path)


def test_another_text_or_chunk_is_refused(target: Path, tmp_path: Path) -> None:
    reference = Reference.record(target, TEXT, tmp_path, loading=loading())
    with pytest.raises(InvalidOptionError, match="another text than mine"):
        measure_quality(target, Text("mine", TEXT.content + "!"), reference=reference)
    with pytest.raises(InvalidOptionError, match="chunks of 64 tokens, not 128"):
        measure_quality(target, TEXT, reference=reference, loading=loading(128))


def test_other_conditions_are_noted(target: Path, other: Path, tmp_path: Path) -> None:
    reference = Reference.record(target, TEXT, tmp_path, loading=loading(n_batch=32))
    found = measure_quality(
        other, TEXT, reference=reference, loading=loading(n_batch=64, type_k="bf16")
    )
    assert any(
        "n_batch 32 and 64" in note and "type_k f16 and bf16" in note for note in found.notes
    )


def test_a_short_text_is_named_with_its_numbers(target: Path, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"sample has [\d,]+ tokens, and two chunks of 4,096 need"):
        measure_quality(target, TEXT, loading=loading(4096))
    with pytest.raises(TextError, match="two chunks"):
        Reference.record(target, TEXT, tmp_path / "r", loading=loading(4096))
    assert not (tmp_path / "r").exists()
    with pytest.raises(InvalidOptionError, match="16 or more"):
        measure_quality(target, TEXT, loading=loading(8))


def test_vocabularies_that_differ_are_refused(target: Path, tmp_path: Path) -> None:
    reference = Reference.record(target, TEXT, tmp_path, loading=loading())
    plain = tiny_models.write_llama(tmp_path / "plain.gguf", vocab="plain")
    with pytest.raises(VocabularyMismatchError, match=r"reference .* and model .* one vocabulary"):
        measure_quality(plain, TEXT, reference=reference)
    altered = tiny_models.write_llama(
        tmp_path / "altered.gguf",
        vocab="bytes",
        alter_token={int(reference.chunks.ids[0, 5]): "qz"},
    )
    with pytest.raises(VocabularyMismatchError, match="the text holds token"):
        measure_quality(altered, TEXT, reference=reference)


def test_padding_ids_count_as_absent(target: Path, other: Path, tmp_path: Path) -> None:
    padded = tiny_models.write_llama(
        tmp_path / "padded.gguf", vocab="bytes", noise=0.3, extra_vocab_rows=24
    )
    narrow = Reference.record(target, TEXT, tmp_path / "narrow", loading=loading())
    one = measure_quality(other, TEXT, reference=narrow, loading=loading()).divergence
    two = measure_quality(padded, TEXT, reference=narrow, loading=loading()).divergence
    wide = Reference.record(padded, TEXT, tmp_path / "wide", loading=loading())
    back = measure_quality(other, TEXT, reference=wide, loading=loading()).divergence
    assert one is not None
    assert two is not None
    assert back is not None
    assert two.kl.value == pytest.approx(one.kl.value, rel=1e-3)
    assert two.overlap.value == pytest.approx(one.overlap.value, rel=1e-3)
    assert back.kl.value == pytest.approx(0.0, abs=1e-4)


def test_an_id_that_is_spelled_otherwise_counts_as_absent(target: Path, tmp_path: Path) -> None:
    reference = Reference.record(target, TEXT, tmp_path, loading=loading())
    unused = next(i for i in range(3, 259) if not len(reference.foreign(np.array([i]))))
    altered = tiny_models.write_llama(
        tmp_path / "altered.gguf", vocab="bytes", alter_token={unused: "qzq"}
    )
    found = measure_quality(altered, TEXT, reference=reference, loading=loading()).divergence
    assert found is not None
    assert found.kl.value == pytest.approx(0.0, abs=1e-4)


class _Late(CancelFlag):
    """Set when the second chunk is done."""

    def progress(self, done: int, total: int, perplexity: float) -> None:
        if done == 2:
            self.set()


def test_a_cancelled_run_leaves_no_file(target: Path, other: Path, tmp_path: Path) -> None:
    flag = _Late()
    with pytest.raises(CancelledError):
        Reference.record(
            target, TEXT, tmp_path, loading=loading(), cancel=flag, on_progress=flag.progress
        )
    assert list(tmp_path.iterdir()) == []
    reference = Reference.record(target, TEXT, tmp_path, loading=loading())
    flag = _Late()
    with pytest.raises(CancelledError):
        measure_quality(
            other,
            TEXT,
            reference=reference,
            loading=loading(),
            cancel=flag,
            on_progress=flag.progress,
        )
    before = sorted(tmp_path.iterdir())
    flag = _Late()
    with pytest.raises(CancelledError):
        Reference.record(
            other, TEXT, tmp_path, loading=loading(), cancel=flag, on_progress=flag.progress
        )
    assert sorted(tmp_path.iterdir()) == before  # the earlier record still stands
    assert Reference.open(tmp_path).model_path == target


def test_a_disk_that_is_too_full_is_named(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))  # type: ignore[attr-defined]
    with pytest.raises(DiskSpaceError, match=r"had 0\.00 GB free"):
        Reference.record(target, TEXT, tmp_path, loading=loading())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(target: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="cannot be written"):
        Reference.record(target, TEXT, target / "in a file", loading=loading())


def test_models_without_a_cut_memory_are_measured_too(tmp_path: Path) -> None:
    mamba = tiny_models.write_mamba(tmp_path / "mamba.gguf", vocab="bytes")
    reference = Reference.record(mamba, TEXT, tmp_path, loading=loading())
    p = laws(mamba, TEXT, 64)
    assert reference.perplexity.value == pytest.approx(np.exp(nll_of(p).mean()), rel=2e-3)


def test_a_model_that_cannot_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelKindError, match="measured"):
        measure_quality(tiny_models.write_projector(tmp_path / "p.gguf"), TEXT)


def test_the_training_length_is_noted(tmp_path: Path) -> None:
    short = tiny_models.write_llama(tmp_path / "short.gguf", vocab="bytes", n_ctx_train=32)
    found = measure_quality(short, TEXT, loading=loading())
    assert any("n_ctx 64" in note and "32 tokens" in note for note in found.notes)


def test_memory_does_not_grow_with_the_chunk(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows of a chunk of 1,024 would take 1.2 MB; eight rows at a time are allowed."""
    monkeypatch.setattr(reader_module, "_ROWS_BYTES", 8 * 4 * 400)
    text = Text("long", built_in().content[:4000])
    peaks = []
    for n_ctx in (128, 1024):
        tracemalloc.start()
        Reference.record(target, text, tmp_path, loading=loading(n_ctx))
        found = measure_quality(
            target, text, reference=Reference.open(tmp_path), loading=loading(n_ctx)
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found.conditions.n_rows == 8
    assert peaks[1] - peaks[0] < 300_000


def test_chunks_are_whole_and_half_of_each_is_scored() -> None:
    cut = chunk(list(range(100)), 32, "t")
    assert isinstance(cut, Chunks)
    assert cut.ids.tolist() == [list(range(i, i + 32)) for i in (0, 32, 64)]
    assert (cut.first, cut.n_scored) == (16, 3 * 15)
