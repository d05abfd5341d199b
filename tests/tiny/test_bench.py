"""A whole sweep of tiny models from the command line: what it writes, and what cannot stop it."""

from __future__ import annotations

import contextlib
import html
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.bench import levels as levels_module
from localspec.bench import quality_sweep as quality_sweep_module
from localspec.bench import sweep as sweep_module
from localspec.bench.levels import levels
from localspec.bench.model_files import model_file
from localspec.bench.plan import Plan
from localspec.bench.prompts import BenchPrompt
from localspec.bench.quality_sweep import QualitySweep
from localspec.bench.results_file import ResultsFile, read_rows
from localspec.bench.sweep import Sweep
from localspec.bench.sweep_results import read_sweep
from localspec.bench.worker import rows_from_process
from localspec.errors import EngineError, InvalidOptionError, ModelFileError, ModelNotFoundError
from localspec.llama.importance import read_importance
from localspec.llama.quantize import quantize

Called = Callable[..., tuple[int, str, str]]  # exit code, stdout, stderr
LOCALSPEC = [sys.executable, "-m", "localspec.cli.main"]
PROMPTS = '{"id": "a", "category": "x", "prompt": "the and of"}\n{"id": "b", "prompt": "hello"}\n'


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("cache")
    return {**os.environ, "HF_HUB_OFFLINE": "1", "LOCALSPEC_CACHE": str(cache)}


@pytest.fixture
def call(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, command: Called) -> Called:
    """The command in this process; workers are processes of their own all the same."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return command


@pytest.fixture(scope="module")
def words(
    tmp_path_factory: pytest.TempPathFactory, tiny_target: Path, tiny_draft: Path
) -> list[str]:
    """A sweep over a good target, one cut in half, and one draft."""
    folder = tmp_path_factory.mktemp("files")
    raw = tiny_target.read_bytes()
    (folder / "cut.gguf").write_bytes(raw[: len(raw) // 2])
    (folder / "prompts.jsonl").write_text(PROMPTS)
    return [
        *("bench", "--targets", f"{tiny_target},{folder / 'cut.gguf'}"),
        *("--drafts", str(tiny_draft), "--prompts", str(folder / "prompts.jsonl")),
        *("--n-gen", "12", "--repeat", "3", "-t", "1", "--n-chunks", "1"),
    ]


@pytest.fixture(scope="module")
def finished(
    words: list[str], environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("sweep") / "out"
    command = [*LOCALSPEC, *words, "--out", str(folder)]
    return folder, subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120
    )


def row_set(folder: Path) -> Counter[tuple[Any, ...]]:
    names = ("type", "target", "draft", "setting", "prompt", "repetition")
    return Counter(tuple(row.get(name) for name in names) for row in read_rows(folder))


def test_a_sweep_writes_everything(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, ended = finished
    assert ended.returncode == 0, ended.stderr
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names >= {"results.jsonl", "results.csv", "report.md", "report.html", "plots/costs.png"}
    assert "tokens/s" in ended.stdout
    assert "█" in ended.stdout
    assert "Fastest: " in ended.stdout
    assert "localspec run --target" in ended.stdout
    assert "answers of up to 12 tokens" in ended.stderr
    assert "\x1b" not in ended.stdout + ended.stderr


def test_the_rows_tell_what_was_measured(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    sweep = read_sweep(read_rows(finished[0]))
    assert {c.key for c in sweep.measured} == {
        *(("target", "none", setting) for setting in ("plain", "copies")),
        *(("target", "draft", setting) for setting in ("plain", "auto", "K=3")),
    }
    fixed = next(c for c in sweep.measured if c.setting == "K=3")
    assert fixed.n_runs == 6
    assert fixed.same_as_plain == 1.0
    assert fixed.acceptance is not None
    assert fixed.judged_by_position[0] >= fixed.judged_by_position[-1]
    assert fixed.peak_rss_bytes is not None
    assert fixed.ttft_s is not None
    assert fixed.speed_up is not None
    assert fixed.draft_share is not None
    assert fixed.samples_ts
    pair = sweep.pairs["target", "draft"]
    assert set(pair["t_ms"]) >= {"1", "2", "4", "8", "16"}
    assert set(pair["d_ms"]) >= {"1", "2"}
    assert sweep.predicted("target", "draft").keys() >= {"K=1", "K=3", "controller, splice"}
    assert sweep.checks


def test_a_broken_file_fails_its_own_rows_only(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, ended = finished
    failed = read_sweep(read_rows(folder)).failed
    assert {c.target for c in failed} == {"cut"}
    assert all("truncated" in (c.error or "") for c in failed)
    assert "not measured: cut" in ended.stderr
    assert "truncated" in (folder / "report.md").read_text("utf-8")


def test_quality_is_part_of_it(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    sweep = read_sweep(read_rows(finished[0]))
    assert sweep.qualities["target"].reference == "target"
    assert sweep.qualities["target"].perplexity is not None
    agreement = sweep.agreements["target", "draft"]
    assert agreement.kl is not None
    assert agreement.kl > 0.0
    assert 0.0 < (agreement.sum_min or 0.0) < 1.0
    assert not list(finished[0].glob(".reading*"))


def test_a_finished_sweep_runs_nothing_again_and_deletes_what_a_killed_one_left(
    finished: tuple[Path, subprocess.CompletedProcess[str]], words: list[str], call: Called
) -> None:
    folder, _ = finished
    before = row_set(folder)
    (folder / ".reading-1").mkdir()
    (folder / ".reading-1" / "reference.kld").write_bytes(b"x" * 1000)
    assert call(*words, "--out", folder)[0] == 0
    assert row_set(folder) == before
    assert not list(folder.glob(".reading*"))


def test_configurations_of_which_a_kill_left_a_part_are_made_again(
    words: list[str],
    call: Called,
    tmp_path: Path,
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """All answers are there, and not all rows of one pair that sum them up."""
    rows = read_rows(finished[0])
    pair = {"type": "configuration", "target": "target", "draft": "draft"}
    last = max(i for i, row in enumerate(rows) if pair.items() <= row.items())
    kept = [row for i, row in enumerate(rows) if i != last]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    code, _, stderr = call(*words, "--out", tmp_path)
    assert code == 0, stderr
    assert row_set(tmp_path) == row_set(finished[0])


def test_another_plan_or_text_does_not_mix_with_it(
    finished: tuple[Path, subprocess.CompletedProcess[str]], words: list[str], call: Called
) -> None:
    for option, value, said in (
        ("--n-gen", 13, "holds another sweep"),
        ("--n-chunks", 2, "another text"),
    ):
        code, _, stderr = call(*words, "--out", finished[0], option, value)
        assert code == 2
        assert said in stderr
        assert "another --out" in stderr


def test_a_stopped_sweep_goes_on_to_the_same_rows(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
    words: list[str],
    environment: dict[str, str],
    call: Called,
    tmp_path: Path,
) -> None:
    """By Ctrl-C, by a kill that leaves half a block and a torn line, and to its end."""
    words = [*words, "--out", str(tmp_path), "--delay", "0.02"]

    def interrupted(*args: Any) -> Iterator[dict[str, Any]]:
        n_blocks = 0
        with contextlib.closing(rows_from_process(*args)) as rows:
            for row in rows:
                yield row
                n_blocks += row["type"] == "block"
                if n_blocks == 2:
                    raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_module, "rows_from_process", interrupted)
        code, _, stderr = call(*words)
    assert code == 130
    assert "Nothing that was measured is lost: 4 answers" in stderr
    assert "The same command continues there" in stderr

    kill_when([*LOCALSPEC, *words], environment, tmp_path / "results.jsonl", n_runs=8)
    rows = read_rows(tmp_path)
    last = max(i for i, row in enumerate(rows) if row["type"] == "run")
    half = "".join(json.dumps(row) + "\n" for row in rows[:last])
    (tmp_path / "results.jsonl").write_text(half + '{"type": "run", "target": "tar')

    code, _, stderr = call(*words)
    assert code == 0, stderr
    assert "continuing" in stderr
    assert row_set(tmp_path) == row_set(finished[0])


def kill_when(command: list[str], environment: dict[str, str], path: Path, *, n_runs: int) -> None:
    """Start a sweep and kill it when its file holds so many runs."""
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up and process.poll() is None:
            if path.read_text().count('"type": "run"') >= n_runs:
                break
            time.sleep(0.02)
        assert process.poll() is None, "it ended before it could be killed"
    finally:
        process.kill()
        process.wait()


def test_a_file_that_was_replaced_is_noticed(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
    words: list[str],
    call: Called,
    tmp_path: Path,
) -> None:
    """One of the same name and size, which only its content tells apart."""
    rows = read_rows(finished[0])
    old = next(row for row in rows if row["type"] == "file" and row["role"] == "draft")
    old["fingerprint"] = "0" * 32
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, stderr = call(*words, "--out", tmp_path)
    assert code == 2
    assert "draft has changed since it was measured" in stderr


def test_a_file_replaced_in_mid_sweep_is_not_measured_under_its_name(
    tiny_target: Path, tiny_draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    target.write_bytes(tiny_target.read_bytes())
    draft.write_bytes(tiny_draft.read_bytes())
    plan = Plan(
        targets=(model_file(target, "t"),),
        drafts=(model_file(draft, "d"),),
        prompts=(BenchPrompt("a", "text", "the"),),
    )
    ran = []

    def worker(function: object, *args: object) -> Iterator[dict[str, Any]]:
        ran.append(function)
        draft.write_bytes(tiny_target.read_bytes())
        yield {"type": "failed", "error": "no matter"}

    monkeypatch.setattr(sweep_module, "rows_from_process", worker)
    monkeypatch.setattr(quality_sweep_module, "rows_from_process", worker)
    said: list[str] = []
    with ResultsFile(tmp_path / "out") as results:
        Sweep(plan, results).run()
        errors = {row["draft"]: row["error"] for row in results.rows if "error" in row}
        target.unlink()
        QualitySweep(plan, results, said.append, said.append).run()
    assert len(ran) == 1
    assert errors["none"] == "no matter"
    assert "draft has changed since this sweep began" in errors["draft"]
    assert ["cannot be read" in words for words in said] == [True]


def test_rows_without_their_header_or_of_no_whole_pair_are_told(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
    words: list[str],
    call: Called,
    tmp_path: Path,
) -> None:
    lines = (finished[0] / "results.jsonl").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "results.jsonl").write_text("".join(lines[1:]), "utf-8")
    code, _, stderr = call(*words, "--out", tmp_path)
    assert code == 2
    assert "without the header" in stderr
    (tmp_path / "results.jsonl").write_text("".join(lines[:3]), "utf-8")
    code, _, stderr = call("bench", "report", tmp_path)
    assert code == 2
    assert "no pair was measured completely yet" in stderr


@pytest.mark.skipif(sys.platform != "linux", reason="such names are Linux's alone")
def test_a_name_that_is_no_utf_8_is_measured_and_reported(
    tiny_target: Path, call: Called, tmp_path: Path
) -> None:
    odd = tmp_path / os.fsdecode(b"\xff\xfe `odd`\n.gguf")
    odd.write_bytes(tiny_target.read_bytes())
    (tmp_path / "prompts").write_text("the and of\n")
    code, stdout, stderr = call(
        "bench", "--targets", odd, "--drafts", "none", "--prompts",
        tmp_path / "prompts", "--n-gen", 4, "--repeat", 1, "-t", 1, "--n-chunks", 1, "--out",
        tmp_path / "out",
    )  # fmt: skip
    assert code == 0, stderr
    assert read_sweep(read_rows(tmp_path / "out")).qualities["\ufffd\ufffd 'odd'\u240a"].perplexity
    assert "\\xff\\xfe \\x60odd\\x60\\x0a.gguf'" in stdout
    report = html.unescape((tmp_path / "out" / "report.html").read_text("utf-8"))
    assert "<code>localspec run --target $'" in report


def test_user_mistakes_are_told_before_a_model_is_loaded(
    call: Called, words: list[str], tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("Too short. " * 20)
    for given, said in (
        (["--targets", "qwenn"], "no file and no catalog model"),
        (["--quants", "Q4_X"], "unknown quant type 'Q4_X'"),
        (["--prompts", "nothing.jsonl"], "is neither a file nor a suite"),
        (["--max-memory", "much"], "8G"),
        (["--max-memory", "9" * 400], "8G"),
        (["--max-kl", "nan"], "not a finite number"),
        (["--temp", "inf"], "not a finite number"),
        (["--delay", "nan"], "not a finite number"),
        (["--prompts", "x" * 300], "is neither a file nor a suite"),
        (["--targets", f"{'x' * 300}.gguf,b.gguf"], "there is no file"),
        (["--text", os.devnull], "is not a regular file"),
        (["--text", str(short)], "220 bytes, and two chunks of 512 tokens"),
        (["--imatrix", __file__, "--quants", "Q4_0"], "no importance matrix in GGUF"),
        (["--imatrix", __file__], "name them with --quants"),
        (["--n-draft", "99"], "1 to 32"),
        (["more.gguf"], "separate several files with commas"),
        (["report", "nowhere"], "holds no sweep"),
    ):
        out = ["--out", tmp_path / "out"] if given[0].startswith("--") else []
        code, _, stderr = call("bench", *out, *given)
        assert code == 2, given
        assert said in stderr
        assert not (tmp_path / "out").exists()


def test_levels_are_made_once_and_labelled(
    tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path))
    made = []
    first = levels(tiny_target, "x", ["q4_0", "F32"], on_make=made.append)
    assert [found.quant for found in first] == ["Q4_0", "F32"]
    assert first[0].label == "target Q4_0"
    assert not first[0].from_lossy  # an F32 source
    assert first[1].path == tiny_target
    assert levels(tiny_target, "x", ["Q4_0", "F32"], on_make=made.append) == first
    assert len(made) == 1
    (again,) = levels(first[0].path, "y", ["Q8_0"])
    assert again.from_lossy
    assert again.source == first[0].path
    assert not list((tmp_path / "levels").glob("*.part"))


def test_a_level_that_cannot_be_made_is_a_contender_with_an_error(
    tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path))

    def refuse(source: Path, path: Path, type_name: str, **given: Any) -> None:
        if type_name == "IQ1_S":
            raise EngineError("this quantization requires an imatrix!")
        quantize(source, path, type_name, **given)

    monkeypatch.setattr(levels_module, "quantize", refuse)
    good, bad = levels(tiny_target, "x", ["Q4_0", "IQ1_S"])
    assert good.error is None
    assert "requires an imatrix" in (bad.error or "")
    with pytest.raises(InvalidOptionError, match="unknown quant type"):
        levels(tiny_target, "x", ["Q0"])


def test_an_importance_matrix_reaches_the_quantiser(tiny_target: Path, tmp_path: Path) -> None:
    import gguf
    import numpy as np

    matrix = tmp_path / "imatrix.gguf"
    writer = gguf.GGUFWriter(matrix, "imatrix")
    writer.add_type("imatrix")
    rng = np.random.default_rng(0)
    for layer in range(2):
        for name, width in (("ffn_down", 128), ("ffn_up", 64), ("ffn_gate", 64), ("attn_q", 64)):
            weight = f"blk.{layer}.{name}.weight"
            sums = rng.exponential(100.0, (1, width)).astype(np.float32) ** 2
            writer.add_tensor(f"{weight}.in_sum2", sums)
            writer.add_tensor(f"{weight}.counts", np.full((1, 1), 10.0, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    quantize(tiny_target, tmp_path / "without.gguf", "Q4_0")
    quantize(tiny_target, tmp_path / "with.gguf", "Q4_0", importance=matrix)
    assert (tmp_path / "with.gguf").read_bytes() != (tmp_path / "without.gguf").read_bytes()
    with pytest.raises(ModelFileError, match="holds no importance matrix"):
        read_importance(tiny_target)
    with pytest.raises(ModelNotFoundError, match="no importance matrix"):
        read_importance(tmp_path / "none")
    (tmp_path / "old.dat").write_bytes(b"\x01\x00\x00\x00abc")
    with pytest.raises(ModelFileError, match="llama-imatrix"):
        read_importance(tmp_path / "old.dat")
