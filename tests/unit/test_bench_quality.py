"""The texts that quality is measured on, and rows stored in 16 bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from localspec.bench.quality import distance
from localspec.bench.reference import decode_row, encode_row, row_words
from localspec.bench.text_reader import built_in, log_softmax, read_text
from localspec.errors import EngineError, TextError


def test_the_built_in_text_is_the_one_that_figures_were_published_for() -> None:
    text = built_in()
    assert text.sha256 == "a99022aeb37d14c1a7583a96272cfad992308a8db2e0d5ff811ba22802c81a36"
    assert 4_500 < len(text.content.split()) < 6_000


def test_a_file_loses_one_newline_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes("Grüße\r\n\n".encode())
    assert read_text(path).content == "Grüße\r\n"
    assert read_text(path).name == str(path)


@pytest.mark.parametrize(
    ("raw", "message"), [(b"caf\xe9", "byte 3 is 0xE9"), (b"\n", "is empty"), (None, "No such")]
)
def test_a_text_that_cannot_be_used_is_named(
    tmp_path: Path, raw: bytes | None, message: str
) -> None:
    path = tmp_path / "t.txt"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(TextError, match=message):
        read_text(path)


@pytest.mark.parametrize("n", [2, 7, 1000])
@pytest.mark.parametrize("spread", [0.0, 0.5, 5.0, 40.0])
def test_a_stored_row_comes_back_to_within_half_a_step(n: int, spread: float) -> None:
    logits = np.random.default_rng(n).normal(0.0, spread, n).astype(np.float32)
    log_p = log_softmax(logits)
    words = np.empty(row_words(n), np.uint16)
    encode_row(log_p, words)
    stored = decode_row(words, n)
    exact = log_p > log_p.max() - 16
    assert np.allclose(stored.log_p[exact], log_p[exact], atol=1.3e-4)
    assert np.all(stored.log_p[~exact] >= log_p[~exact])
    assert np.all(stored.is_floor[~exact])


def test_the_distance_of_two_rows_by_hand() -> None:
    p, q = np.array([0.6, 0.4, 1e-30]), np.array([0.25, 0.7, 0.05])
    words = np.empty(row_words(3), np.uint16)
    encode_row(np.log(p).astype(np.float32), words)
    found = distance(decode_row(words, 3), np.log(q).astype(np.float32))
    assert found.kl == pytest.approx(0.6 * np.log(0.6 / 0.25) + 0.4 * np.log(0.4 / 0.7), abs=3e-4)
    assert found.overlap == pytest.approx(0.25 + 0.4, abs=2e-4)
    assert not found.same_top


def test_logits_that_are_no_numbers_are_an_error_with_a_name() -> None:
    row = np.zeros(5, np.float32)
    row[3] = np.nan
    with pytest.raises(EngineError, match="not numbers"):
        log_softmax(row)
