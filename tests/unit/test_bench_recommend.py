"""What is recommended follows from the rows by rules."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.plots import draw_plots, pareto
from localspec.bench.recommend import Limits, command, recommend
from localspec.bench.sweep_results import SweepResults
from tests.unit.bench_rows import pair_rows, quality_row, sweep

NONE_BIG = pair_rows("big", "none", {"plain": 10.0, "copies": 10.1}, peak_gb=3.0)
BIG = pair_rows("big", "small", {"plain": 10.0, "auto": 22.0, "K=3": 20.0}, peak_gb=4.0)
NONE_LOW = pair_rows("low", "none", {"plain": 16.0, "copies": 15.9}, peak_gb=1.5, from_lossy=True)
LOW = pair_rows(
    "low", "small", {"plain": 16.0, "auto": 12.0, "K=3": 11.0}, peak_gb=2.5, from_lossy=True
)
QUALITY = [quality_row("big", None, "big"), quality_row("low", 0.2, "big")]


@pytest.fixture
def found() -> SweepResults:
    return sweep(NONE_BIG, BIG, NONE_LOW, LOW, more=QUALITY)


def test_the_fastest_pair_with_the_command_that_runs_it(found: SweepResults) -> None:
    result = recommend(found)
    assert result.fastest is not None
    assert result.fastest.key == ("big", "small", "auto")
    first = result.sentences[0]
    assert "`localspec run --target big.gguf --draft small.gguf --temp 0`" in first
    assert "2.20" in first


def test_flags_of_a_fixed_length_and_of_no_draft(found: SweepResults) -> None:
    fixed = next(c for c in found.measured if c.key == ("big", "small", "K=3"))
    assert command(fixed).endswith("--draft small.gguf --drafter model --n-draft 3")
    plain = next(c for c in found.measured if c.key == ("big", "none", "plain"))
    assert command(plain).endswith("--draft none --drafter none")


def test_the_command_loads_as_the_sweep_did() -> None:
    """Speed and memory are those of that context, those threads and that cache."""
    narrow = sweep(NONE_BIG, BIG, loading={"n_ctx": 2048, "n_threads": 1, "type_k": "q8_0"})
    said = recommend(narrow).sentences[0]
    assert "--temp 0 --n-ctx 2048 --n-threads 1 --type-k q8_0`" in said


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to ask")
@pytest.mark.parametrize(
    "name",
    [
        "a b.gguf", "qu'ote\".gguf", "back\\n.gguf", "$HOME.gguf", "a`id`b.gguf", "new\nline.gguf",
        "e\x1b[31m.gguf", os.fsdecode(b"\xff'\\.gguf"), "-dash.gguf", "none", "auto", "~x.gguf",
        "\u00e9\u202e.gguf", str(Path.home() / "my `models`" / "x.gguf"),
    ],
)  # fmt: skip
def test_the_command_can_be_pasted_into_a_shell(found: SweepResults, name: str) -> None:
    c = replace(found.measured[0], target_reference=name, draft_reference=name)
    line = command(c)
    assert "`" not in line  # it stands between code marks
    assert line.isprintable()
    script = f"localspec() {{ printf '%s\\0' \"$@\"; }}; {line}"
    said = subprocess.run(["bash", "-c", os.fsencode(script)], capture_output=True, check=True)
    words = [os.fsdecode(word) for word in said.stdout.split(b"\0")]
    assert Path(words[2]) == Path(words[4]) == Path(name)
    assert not words[2].startswith("-")
    assert words[4] not in ("none", "auto")


@pytest.mark.parametrize(
    ("limits", "best", "words"),
    [
        (Limits(max_memory_bytes=3_500_000_000), ("low", "none", "plain"), "3.5 GB"),
        (Limits(max_kl=0.05), ("big", "small", "auto"), "KL of 0.05"),
        (
            Limits(max_memory_bytes=3_500_000_000, max_kl=0.05),
            ("big", "none", "copies"),
            "3.5 GB of memory and a mean KL of 0.05",
        ),
    ],
)
def test_limits_are_kept(
    found: SweepResults, limits: Limits, best: tuple[str, str, str], words: str
) -> None:
    result = recommend(found, limits)
    assert result.best is not None
    assert result.best.key == best
    assert any(words in sentence for sentence in result.sentences)


def test_limits_that_nothing_keeps_name_the_nearest(found: SweepResults) -> None:
    result = recommend(found, Limits(max_memory_bytes=1_000_000_000))
    assert result.best is None
    assert any("takes 1.50 GB" in sentence for sentence in result.sentences)


def test_a_quality_limit_without_quality_is_not_judged() -> None:
    result = recommend(sweep(NONE_BIG, BIG), Limits(max_kl=0.05))
    assert result.best is None
    assert any("no KL was measured" in sentence for sentence in result.sentences)


def test_a_quality_limit_is_judged_where_only_the_small_have_no_kl() -> None:
    some = sweep(NONE_BIG, NONE_LOW, more=[quality_row("big", None, "big")])
    limits = Limits(max_memory_bytes=2_000_000_000, max_kl=0.05)
    said = "\n".join(recommend(some, limits).sentences)
    assert "no KL was measured" not in said
    assert "Nothing in this sweep stays within 2 GB of memory and a mean KL of 0.05" in said


def test_where_drafting_does_not_pay_that_is_said(found: SweepResults) -> None:
    said = "\n".join(recommend(found).sentences)
    assert "big: drafting pays, 2.20" in said
    only_draft = "\n".join(recommend(sweep(LOW)).sentences)
    assert "low: drafting does not pay here, at best 0.75" in only_draft
    assert "--drafter none" in only_draft


def test_a_draft_model_that_costs_is_never_the_fastest() -> None:
    """Though its process ran in a quicker hour than the one without a draft model."""
    slow_hour = pair_rows("low", "none", {"plain": 8.0, "copies": 8.0})
    fast_hour = pair_rows("low", "small", {"plain": 16.0, "auto": 12.0})
    result = recommend(sweep(slow_hour, fast_hour))
    assert result.fastest is not None
    assert result.fastest.draft == "none"


def test_what_cannot_be_told_from_plain_is_not_recommended_over_it() -> None:
    loose = pair_rows("low", "small", {"plain": 16.0, "auto": 17.0})
    for row in loose:  # one answer in six was slower
        if row.get("setting") == "auto" and row["type"] == "configuration":
            row.update(speed_up_low=0.9, speed_up_high=1.2)
    result = recommend(sweep(NONE_LOW, loose))
    assert result.fastest is not None
    assert result.fastest.setting == "plain"
    assert any("no measurable difference in this sweep" in s for s in result.sentences)


def test_where_nothing_was_drafted_a_ratio_is_noise() -> None:
    quiet = pair_rows("low", "small", {"plain": 16.0, "auto": 17.0})
    for row in quiet:
        if row.get("setting") == "auto" and row["type"] == "configuration":
            row["n_draft_mean"] = 0.0
    result = recommend(sweep(NONE_LOW, quiet))
    assert result.fastest is not None
    assert result.fastest.setting == "plain"


def test_a_level_of_a_lossy_source_is_for_speed_only() -> None:
    result = recommend(sweep(NONE_LOW, more=[quality_row("low", 0.001, "source")]))
    assert "for its speed only, and cannot be better than its source" in result.sentences[0]
    assert any("Made from a lossy source" in sentence for sentence in result.sentences)


def test_speeds_that_cannot_be_told_apart_are_said_to_be_alike() -> None:
    a = pair_rows("a", "none", {"plain": 10.0}, spread=0.1)
    b = pair_rows("b", "none", {"plain": 10.3}, spread=0.1)
    assert any(
        "No measurable difference in speed" in s and "a + no" in s
        for s in recommend(sweep(a, b)).sentences
    )
    far = pair_rows("b", "none", {"plain": 20.0})
    assert not any(
        "No measurable difference in speed" in s for s in recommend(sweep(a, far)).sentences
    )


def test_an_order_of_few_answers_is_said_to_be_one() -> None:
    few = [[row for row in rows if row.get("repetition") != 1] for rows in (NONE_BIG, NONE_LOW)]
    assert any("order may be chance" in s for s in recommend(sweep(*few)).sentences)
    assert not any("chance" in s for s in recommend(sweep(few[0])).sentences)
    assert not any("chance" in s for s in recommend(sweep(NONE_BIG, NONE_LOW)).sentences)


def test_verdicts(found: SweepResults) -> None:
    told = {c.key: c.verdict for c in found.measured}
    assert told["big", "small", "auto"] == "pays"
    assert told["low", "small", "auto"] == "costs"
    assert told["big", "none", "plain"] == "baseline"


def test_nothing_measured_recommends_nothing() -> None:
    assert "No pair was measured completely" in recommend(sweep()).sentences[0]


def test_the_pareto_front_holds_what_nothing_beats_in_both() -> None:
    assert pareto([(0.0, 10.0), (0.1, 9.0), (0.2, 20.0), (0.2, 19.0)]) == [0, 2]


@pytest.mark.filterwarnings("error")
def test_the_heat_map_of_one_target_has_room_for_long_names(tmp_path: Path) -> None:
    name = "qwen2.5-coder-1.5b-instruct-q4_k_m"
    draft = name.replace("1.5b", "0.5b")
    rows = pair_rows(name, draft, {"plain": 10.0, "auto": 9.0}, peak_gb=4.0)
    assert "speed-up" in draw_plots(sweep(rows), tmp_path)
