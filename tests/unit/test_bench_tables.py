"""Tables and charts: they fit, and what all names begin with is left out and said once."""

from __future__ import annotations

from localspec.bench.report_sections import report_sections, speed_table
from localspec.bench.tables import chart_lines, common_words, short_names, table_lines
from tests.unit.bench_rows import pair_rows, sweep


def test_the_rest_after_the_common_words() -> None:
    names = short_names(["llama-8b F16", "llama-8b-q4_k_m", "llama-8b Q8_0"])
    assert list(names.values()) == ["F16", "q4_k_m", "Q8_0"]
    assert common_words(names) == "llama-8b"


def test_a_word_is_never_cut() -> None:
    assert set(short_names(["qwen2-coder-7b", "qwen2-coder-72b"]).values()) == {"7b", "72b"}
    assert short_names(["llama31", "llama32"]) == {"llama31": "llama31", "llama32": "llama32"}


def test_names_that_would_be_empty_or_alone_stay() -> None:
    assert short_names(["llama-8b", "llama-8b-q4"])["llama-8b"] == "llama-8b"
    assert common_words(short_names(["llama-8b-q4"])) is None


def test_tables_say_what_was_left_out_and_a_baseline_once() -> None:
    found = sweep(
        pair_rows("model-8b F16", "none", {"plain": 10.0, "copies": 10.1}),
        pair_rows("model-8b F16", "draft-1b Q8_0", {"plain": 10.0, "auto": 22.0}),
        pair_rows("model-8b Q2_K", "draft-1b Q4_0", {"plain": 16.0, "auto": 15.9}),
    )
    rows = [row[:3] for row in speed_table(found).rows]
    assert sorted(rows) == [
        ("F16", "Q8_0", "auto"),
        ("F16", "none", "copies"),
        ("F16", "none", "plain"),
        ("Q2_K", "Q4_0", "auto"),
        ("Q2_K", "Q4_0", "plain"),
    ]
    conditions = next(s for s in report_sections(found) if s.title == "Conditions")
    assert any("'model-8b'" in point for point in conditions.points)
    speed_up = next(s for s in report_sections(found) if s.title == "Speed-up by draft and target")
    assert speed_up.table is not None
    assert speed_up.table.header[-2:] == ("Q8_0", "Q4_0")


def test_tables_and_charts_fit_their_width() -> None:
    found = sweep(pair_rows("big", "small|odd*name", {"plain": 10.0, "auto": 22.0, "K=3": 20.0}))
    for width in (40, 80, 200):
        lines = [*table_lines(speed_table(found), width), *chart_lines(found, width)]
        assert max(map(len, lines)) <= max(width, 60), lines
