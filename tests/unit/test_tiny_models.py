"""llama.cpp loads the tiny models and gives what the other tests count on."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import gguf
import llama_cpp
import numpy as np
import pytest

from localspec.llama.native import init_backend
from tests import tiny_models as tiny

N_CTX = 256
PROMPT = [tiny.BOS, 5, 9, 23, 40, 11]


class Runner:
    """The least that runs a model: one context, all rows of logits."""

    def __init__(self, model) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = N_CTX
        params.n_threads = params.n_threads_batch = 1
        self.model = model
        self.vocab = llama_cpp.llama_model_get_vocab(model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.context = llama_cpp.llama_init_from_model(model, params)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(N_CTX, 0, 1)
        self.n_past = 0

    def decode(self, ids) -> np.ndarray:
        """Rows of logits, float32, shape (len(ids), n_vocab)."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = self.n_past + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1
        assert llama_cpp.llama_decode(self.context, batch) == 0
        self.n_past += len(ids)
        rows = [llama_cpp.llama_get_logits_ith(self.context, i) for i in range(len(ids))]
        return np.array([np.ctypeslib.as_array(row, (self.n_vocab,)) for row in rows])

    def truncate(self, n: int) -> bool:
        return llama_cpp.llama_memory_seq_rm(self.memory, 0, n, -1)

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(self.memory, True)
        self.n_past = 0

    def greedy(self, prompt, n) -> tuple[list[int], float]:
        """n tokens, and the smallest margin between the two largest logits."""
        self.clear()
        row = self.decode(prompt)[-1]
        ids, margins = [], []
        for _ in range(n):
            second, first = np.sort(row)[-2:]
            margins.append(float(first - second))
            ids.append(int(row.argmax()))
            row = self.decode(ids[-1:])[0]
        return ids, min(margins)

    def tokenize(self, text: bytes) -> list[int]:
        found = (llama_cpp.llama_token * 256)()
        n = llama_cpp.llama_tokenize(self.vocab, text, len(text), found, 256, False, False)
        assert n >= 0
        return list(found[:n])

    def text(self, ids) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        pieces = []
        for token in ids:
            n = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, 64, 0, False)
            pieces.append(buffer.raw[:n])
        return b"".join(pieces)

    def close(self) -> None:
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)


def load(path):
    init_backend()
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    return llama_cpp.llama_model_load_from_file(str(path).encode(), params)


@contextmanager
def running(path) -> Iterator[Runner]:
    model = load(path)
    assert model, f"{path} does not load"
    runner = Runner(model)
    try:
        yield runner
    finally:
        runner.close()
        llama_cpp.llama_model_free(model)


WRITERS = (tiny.write_llama, tiny.write_mamba, tiny.write_gemma_swa)


@pytest.mark.parametrize("vocab", ["plain", "bytes"])
@pytest.mark.parametrize("write", WRITERS)
def test_models_load_and_decode(tmp_path, write, vocab):
    path = write(tmp_path / "tiny.gguf", vocab=vocab)
    assert path.stat().st_size < 500_000
    with running(path) as runner:
        rows = runner.decode(PROMPT)
    assert rows.shape == (len(PROMPT), 64 if vocab == "plain" else runner.n_vocab)
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("write", WRITERS)
def test_the_same_arguments_write_the_same_bytes(tmp_path, write):
    first, second, other = (
        write(tmp_path / f"{i}.gguf", seed=seed).read_bytes() for i, seed in enumerate((4, 4, 5))
    )
    assert first == second != other


@pytest.mark.parametrize("write", WRITERS)
def test_greedy_text_is_varied_and_does_not_end(tmp_path, write):
    with running(write(tmp_path / "tiny.gguf")) as runner:
        ids, margin = runner.greedy(PROMPT, 200)
    assert len(set(ids)) >= 20
    assert margin > 0.0
    assert not {tiny.UNK, tiny.BOS, tiny.EOS} & set(ids)


def test_cycle_models_follow_their_successors_by_a_wide_margin(tmp_path):
    for vocab in ("plain", "bytes"):
        for breaks in (0, 9):
            path = tiny.write_llama(
                tmp_path / "cycle.gguf", vocab=vocab, cycle=True, cycle_breaks=breaks
            )
            follow = tiny.successors(0, breaks, vocab)
            start = next(iter(follow))
            expected = [follow[start]]
            while len(expected) < 200:
                expected.append(follow[expected[-1]])
            with running(path) as runner:
                ids, margin = runner.greedy([tiny.BOS, start], 200)
            assert ids == expected
            assert margin > 1.0


def test_a_noisy_draft_agrees_with_its_target_now_and_then(tmp_path):
    ids = [tiny.BOS, *np.random.default_rng(0).integers(tiny.N_SPECIAL, 64, 60).tolist()]
    laws = []
    for noise in (0.0, 0.3):
        with running(tiny.write_llama(tmp_path / "tiny.gguf", noise=noise)) as runner:
            rows = runner.decode(ids).astype(np.float64)
        weights = np.exp(rows - rows.max(axis=1, keepdims=True))
        laws.append(weights / weights.sum(axis=1, keepdims=True))
    overlap = np.minimum(*laws).sum(axis=1)
    assert 0.2 < overlap.mean() < 0.6


def test_ends_can_be_predicted_when_asked_for(tmp_path):
    with running(tiny.write_llama(tmp_path / "tiny.gguf", ends=True)) as runner:
        rows = runner.decode(PROMPT)
    assert np.all(rows.max(axis=1) - rows[:, tiny.EOS] < 15.0)


def test_text_survives_the_byte_vocabulary(tmp_path):
    with running(tiny.write_llama(tmp_path / "tiny.gguf", vocab="bytes")) as runner:
        text = "the end, naïve 😀\nis <|im_end|>"
        ids = runner.tokenize(text.encode())
        assert runner.text(ids) == text.encode()
        assert tiny.IM_END not in ids
        assert {tiny.FIRST_BYTE + byte for byte in "😀".encode()} < set(ids)
        template = llama_cpp.llama_model_chat_template(runner.model, None)
    assert template == tiny.CHATML.encode()


def test_padding_rows_change_nothing_else(tmp_path):
    rows = []
    for extra in (0, 8):
        path = tiny.write_llama(tmp_path / "tiny.gguf", extra_vocab_rows=extra)
        with running(path) as runner:
            rows.append(runner.decode(PROMPT))
    assert rows[1].shape == (len(PROMPT), 72)
    assert np.allclose(rows[0], rows[1][:, :64], atol=1e-4)
    assert rows[1][:, 64:].max() < rows[0][:, tiny.N_SPECIAL :].min()


def test_token_texts_can_be_altered(tmp_path):
    path = tiny.write_llama(tmp_path / "tiny.gguf", alter_token={7: "▁other"})
    with running(path) as runner:
        texts = [llama_cpp.llama_vocab_get_text(runner.vocab, t).decode() for t in (6, 7, 8)]
    assert texts == ["▁w6", "▁other", "▁w8"]


def test_end_of_sequence_token(tmp_path):
    for eos_id in (tiny.EOS, 9):
        with running(tiny.write_llama(tmp_path / "tiny.gguf", eos_id=eos_id)) as runner:
            assert llama_cpp.llama_vocab_eos(runner.vocab) == eos_id
            assert llama_cpp.llama_vocab_is_eog(runner.vocab, eos_id)


def test_memory_of_each_kind(tmp_path):
    for write, can_truncate in ((tiny.write_llama, True), (tiny.write_mamba, False)):
        with running(write(tmp_path / "tiny.gguf")) as runner:
            runner.decode(PROMPT)
            assert runner.truncate(len(PROMPT) - 2) is can_truncate
            assert llama_cpp.llama_model_is_recurrent(runner.model) is not can_truncate
    with running(tiny.write_gemma_swa(tmp_path / "tiny.gguf")) as runner:
        assert llama_cpp.llama_model_n_swa(runner.model) == tiny.SWA_WINDOW


@pytest.mark.parametrize(
    ("write", "architecture", "kind"),
    [
        (tiny.write_projector, "clip", "mmproj"),
        (tiny.write_adapter, "llama", "adapter"),
        (tiny.write_bert, "bert", "model"),
    ],
)
def test_other_files_say_what_they_are(tmp_path, write, architecture, kind):
    path = write(tmp_path / "other.gguf")
    fields = gguf.GGUFReader(path).fields
    assert fields["general.architecture"].contents() == architecture
    assert fields["general.type"].contents() == kind
    assert not load(path)
