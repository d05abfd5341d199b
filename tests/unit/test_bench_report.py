"""Report and comparison from rows alone: no model, no engine."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path

import pytest

from localspec.bench import report as report_module
from localspec.bench.compare import compare
from localspec.bench.configuration import Configuration
from localspec.bench.recommend import Limits
from localspec.bench.report import write_report
from localspec.bench.sweep_results import SweepResults, read_sweep
from localspec.bench.tables import chart_lines
from localspec.errors import InvalidOptionError
from tests.unit.bench_rows import header, pair_rows, quality_row, run, sweep, unmeasured

PAIRS = [
    pair_rows("big", "none", {"plain": 10.0, "copies": 10.1}),
    pair_rows("big", "small|odd*name", {"plain": 10.0, "auto": 22.0, "K=3": 20.0}),
    pair_rows("low", "none", {"plain": 16.0, "copies": 15.9}, from_lossy=True),
]
QUALITY = [quality_row("big", None, "big"), quality_row("low", 0.2, "big")]


@pytest.fixture
def found() -> SweepResults:
    broken = unmeasured(PAIRS[0], target="<b>broken</b>", setting="plain")
    failed = Configuration(**broken, error="it is truncated: 5 of 9 bytes")
    return sweep(*PAIRS, more=[*QUALITY, failed.as_row()])


def test_a_folder_gets_all_its_files(found: SweepResults, tmp_path: Path) -> None:
    assert write_report(found, tmp_path, Limits(max_kl=0.1)) == []
    plots = {path.name for path in (tmp_path / "plots").iterdir()}
    assert plots == {"speed-quality.png", "speed-up.png", "acceptance.png", "costs.png", "time.png"}
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in (tmp_path / "plots").iterdir())
    markdown = (tmp_path / "report.md").read_text("utf-8")
    assert markdown.index("## Recommendation") < markdown.index("## Conditions")
    assert "plots/speed-up.png" in markdown
    assert "it is truncated: 5 of 9 bytes" in markdown
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text("utf-8").splitlines()))
    assert len(rows) == 8
    fast = next(row for row in rows if row["setting"] == "auto")
    assert float(fast["speed_up"]) == pytest.approx(2.2)
    assert json.loads(fast["accepted_by_position"]) == [48, 12]
    assert next(row for row in rows if row["target"] == "low")["kl_mean"] == "0.2"


def test_the_page_needs_no_other_file_and_takes_names_as_text(
    found: SweepResults, tmp_path: Path
) -> None:
    write_report(found, tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    tags: list[tuple[str, dict[str, str | None]]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append((tag, dict(attrs)))

    Tags().feed(page)
    assert "b" not in {tag for tag, _ in tags}
    assert "&lt;b&gt;broken&lt;/b&gt;" in page
    sources = [attrs["src"] for tag, attrs in tags if tag == "img"]
    assert len(sources) == 5
    assert all((source or "").startswith("data:image/png;base64,") for source in sources)
    assert any(tag == "meta" and attrs.get("name") == "viewport" for tag, attrs in tags)
    assert not any(tag in ("script", "link") for tag, _ in tags)


def test_letters_that_the_plots_font_lacks_are_no_warning(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the plots")
    pairs = pair_rows("\u6a21\u578b", "none", {"plain": 10.0, "copies": 11.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert write_report(sweep(pairs), tmp_path) == []
    assert (tmp_path / "plots" / "costs.png").is_file()


def test_without_matplotlib_the_words_stay(
    found: SweepResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise ImportError("No module named 'matplotlib'")

    monkeypatch.setattr(report_module, "draw_plots", missing)
    (note,) = write_report(found, tmp_path)
    assert "pip install matplotlib" in note
    assert "![" not in (tmp_path / "report.md").read_text("utf-8")


def test_the_report_needs_no_model_and_no_engine(tmp_path: Path) -> None:
    lines = [header(), *(row for rows in PAIRS for row in rows)]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    code = (
        "import sys; sys.modules['llama_cpp'] = None\n"
        "from localspec.cli.main import main\n"
        f"main(['bench', 'report', {str(tmp_path)!r}])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "Fastest: big" in ended.stdout
    assert "█" in ended.stdout
    assert (tmp_path / "report.html").is_file()


def test_runs_of_an_unfinished_pair_are_counted_and_left_out() -> None:
    loose = {"target": "big", "draft": "late", **run("plain", "a", 0, 5.0)}
    found = sweep(PAIRS[0], more=[loose])
    assert found.n_unfinished == 1
    assert "late" not in found.drafts


def test_a_kill_before_the_last_rows_of_a_pair_leaves_a_report(tmp_path: Path) -> None:
    """Its own row is there, and those that sum it up are not."""
    rows = [row for row in pair_rows("t", "d", {"plain": 10.0}) if row["type"] != "configuration"]
    for found in (sweep(rows), sweep(rows, pair_rows("u", "d", {"plain": 10.0, "auto": 11.0}))):
        assert found.n_unfinished == 6
        write_report(found, tmp_path)
        assert chart_lines(found, 80) is not None


def test_predictions_are_checked_against_live_runs_of_the_same_prompt(found: SweepResults) -> None:
    assert {check.setting for check in found.checks} == {"auto", "K=3", "copies"}
    assert found.prediction_error == pytest.approx(0.0, abs=0.03)


def test_a_comparison_of_like_sweeps() -> None:
    a = sweep(*PAIRS)
    b = sweep(pair_rows("big", "none", {"plain": 12.0, "copies": 10.1}))
    found = compare(a, b)
    plain = found.table.rows[0]
    assert plain[:3] == ("big", "none", "plain")
    assert plain[5] == "1.20"
    assert plain[8] == "yes"
    assert found.n_only_one == len(a.measured) - 2


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"workload": {**header()["workload"], "n_gen": 64}}, r"tokens of an answer .*20 against"),
        ({"workload": {**header()["workload"], "prompts": "other"}}, "the prompts differ"),
        ({"workload": {**header()["workload"], "answering": {"temperature": 0.8}}}, "sampling"),
        ({"machine": {**header()["machine"], "cpu_info": "another"}}, r"conditions.*--across"),
    ],
)
def test_unlike_sweeps_are_refused_with_the_reason(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=reason):
        compare(sweep(*PAIRS), sweep(*PAIRS, **changed))


def test_other_conditions_are_named_when_they_are_what_is_compared() -> None:
    b = sweep(*PAIRS, machine={**header()["machine"], "engine": "newer"})
    assert compare(sweep(*PAIRS), b, across=True).differences == (
        "engine llama-cpp-python 0.3.36 against newer",
    )
    threads = [[{**r, "n_threads": 4} if r["type"] == "configuration" else r for r in PAIRS[0]]]
    with pytest.raises(InvalidOptionError, match="n_threads 2 against 4"):
        compare(sweep(PAIRS[0]), sweep(*threads))


def test_other_files_and_nothing_in_common_are_refused() -> None:
    other = [[{**r, "model_size": 11} if r["type"] == "configuration" else r for r in PAIRS[0]]]
    with pytest.raises(InvalidOptionError, match="different files"):
        compare(sweep(PAIRS[0]), sweep(*other))
    with pytest.raises(InvalidOptionError, match="was measured in both"):
        compare(sweep(PAIRS[0]), sweep(PAIRS[2]))


def test_other_weights_of_one_name_and_size_are_named() -> None:
    def marked(digit: str) -> SweepResults:
        rows = [{"type": "file", "role": role, "label": label, "fingerprint": digit * 32}
                for role, label in (("target", "big"), ("draft", "never run"))]  # fmt: skip
        return sweep(PAIRS[0], more=rows)

    assert not compare(marked("0"), marked("0")).differences
    with pytest.raises(InvalidOptionError, match="target big is another file"):
        compare(marked("0"), marked("1"))
    found = compare(marked("0"), marked("1"), across=True)
    assert found.differences == ("target big is another file",)


def test_rows_of_no_sweep_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="belong to no sweep"):
        read_sweep(PAIRS[0])


def test_names_with_markup_stay_names(found: SweepResults, tmp_path: Path) -> None:
    write_report(found, tmp_path)
    markdown = (tmp_path / "report.md").read_text("utf-8")
    assert "small\\|odd\\*name" in markdown
    assert "\\<b\\>broken" in markdown
    assert "Linux x86_64" in markdown
