"""The command as a person meets it: streams, exit codes, and what bad input is told."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import localspec
from localspec import LocalspecError
from localspec.errors import EngineError, InvalidOptionError
from localspec.gguf.header import GGUFHeader
from localspec.llama import quantize as quantizing
from localspec.llama.quantize import quantize
from tests import tiny_models
from tests.gguf_edit import without_tensor

_CACHE = tempfile.TemporaryDirectory()  # costs of tiny models stay out of the user's cache
LOCALSPEC = [sys.executable, "-m", "localspec"]


def call(*args: object, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
    raw = stdin if isinstance(stdin, bytes) else stdin.encode()
    if args[0] == "run" and "-t" not in args:
        args = ("run", "-t", 1, *args[1:])  # see tests/tiny/conftest.py
    ended = subprocess.run(
        [*LOCALSPEC, *map(str, args)],
        input=raw,
        capture_output=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": _CACHE.name},
        timeout=60,
    )
    return subprocess.CompletedProcess(
        ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode()
    )


@pytest.fixture
def run_pair(tiny_target: Path, tiny_draft: Path) -> list[object]:
    return ["run", "--target", tiny_target, "--draft", tiny_draft, "--temp", 0, "-n", 20]


def test_text_on_stdout_the_gain_in_one_line_on_stderr(run_pair: list[object]) -> None:
    ended = call(*run_pair, "hello", "--n-draft", 2)  # the controller may draft nothing here
    assert ended.returncode == 0
    assert ended.stdout
    lines = [x for x in ended.stderr.splitlines() if not x.startswith("localspec: note: ")]
    assert re.fullmatch(
        r"20 tokens \(cut at --max-tokens\) in [\d.]+ s · \d+ tokens/s, [\d.]+ × plain · "
        r"\d+% of the guesses right · [\d.]+ tokens per pass",
        "\n".join(lines),
    )


def test_verbose_tells_where_the_time_went(run_pair: list[object]) -> None:
    ended = call(*run_pair, "hello", "--n-draft", 2, "--verbose")
    last = ended.stderr.splitlines()[-1]
    assert re.match(
        r"time: \d+% drafting, \d+% verification, \d+% other · draft tokens: \d+ accepted, "
        r"\d+ rejected, \d+ discarded · \d+ target passes · prompt: 0 tokens cached, \d+ evaluated",
        last,
    )
    assert "memory, target" in ended.stderr


def test_drafts_do_not_change_the_text(run_pair: list[object]) -> None:
    plain = call(*run_pair, "hello", "--drafter", "none")
    assert "plain decoding" in plain.stderr
    for how in (["--n-draft", 1], ["--n-draft", 7], ["--drafter", "ngram"], ["--draft", "none"]):
        assert call(*run_pair, "hello", *how).stdout == plain.stdout


def test_the_prompt_may_come_from_a_pipe(run_pair: list[object]) -> None:
    direct = call(*run_pair, "hello")
    assert call(*run_pair, "-", stdin="hello").stdout == direct.stdout
    assert call(*run_pair, stdin="hello").stdout == direct.stdout


def test_json_lines_tell_the_whole_answer(run_pair: list[object]) -> None:
    ended = call(*run_pair, "--json", "--n-draft", 3, "hello")
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [e["type"] for e in events][-1] == "finished"
    assert {e["type"] for e in events} == {"prefill", "round", "finished"}
    rounds = [e for e in events if e["type"] == "round"]
    finished = events[-1]
    assert "".join(r["text"] for r in rounds) == finished["text"]
    timings = finished["timings"]
    assert timings["draft_n"] == sum(r["n_draft"] for r in rounds)
    assert timings["draft_n_accepted"] == sum(r["n_accepted"] for r in rounds)
    assert timings["predicted_n"] == len(finished["token_ids"]) == 20
    assert {"prompt_n", "prompt_per_second", "predicted_per_second"} <= set(timings)
    for r in rounds:
        assert {"index", "n_draft", "n_accepted", "draft_s", "verify_s"} <= set(r)
        for token in r["tokens"]:
            assert {"id", "text", "source", "verdict", "p", "q"} <= set(token)
            assert token["verdict"] in ("accepted", "rejected", "discarded", "bonus", "correction")


def test_zero_tokens_is_an_empty_answer(run_pair: list[object]) -> None:
    ended = call(*run_pair, "-n", 0, "hello")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "0 tokens" in ended.stderr


def test_a_reader_that_leaves_early_is_no_error(tiny_target: Path) -> None:
    command = " ".join(
        map(str, [*LOCALSPEC, "run", "-t 1", "-m", tiny_target, "--raw", "a", "--temp 0"])
    )
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} --json | head -c 5"],
        capture_output=True, timeout=60, text=True,
    )  # fmt: skip
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr


def test_ctrl_c_keeps_what_was_made(tiny_target: Path) -> None:
    long = "-t 1 -c 99999"  # an answer that does not end by itself
    process = subprocess.Popen(
        [*LOCALSPEC, "run", "-m", str(tiny_target), "--raw", "a", "--json", *long.split()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if '"round"' in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert json.loads(out.splitlines()[-1])["reason"] == "cancelled"


BAD_FILES = ["missing", "text", "empty", "truncated", "folder", "projector", "adapter", "bert"]


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory, tiny_target: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bad")
    paths = {name: folder / f"{name}.gguf" for name in BAD_FILES}
    paths["text"].write_text("this is no model")
    paths["empty"].write_bytes(b"")
    whole = tiny_target.read_bytes()
    paths["truncated"].write_bytes(whole[: len(whole) // 2])
    paths["folder"].mkdir()
    tiny_models.write_projector(paths["projector"])
    tiny_models.write_adapter(paths["adapter"])
    tiny_models.write_bert(paths["bert"])
    return paths


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_get_a_named_error(
    bad_files: dict[str, Path], tiny_target: Path, name: str
) -> None:
    ended = call("run", "--target", bad_files[name], "--draft", "none", "hello")
    assert_named_error(ended)
    assert bad_files[name].name in ended.stderr
    with pytest.raises(LocalspecError, match=bad_files[name].name):
        localspec.load(tiny_target, bad_files[name])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["hello", "--temp", -1], "temperature is -1"),
        (["hello", "--n-draft", -1], "n_draft is -1"),
        (["hello", "-n", -1], "max_tokens is -1"),
        (["hello", "--top-k", -3], "top_k is -3"),
        (["hello", "-c", 0], "n_ctx is 0"),
        (["hello", "-t", 0], "n_threads is 0"),
        (["hello", "--type-k", "q9"], "unknown cache type"),
        (["hello", "--temprature", 1], "No such option"),
        (["hello", "--verifier", "guess"], "guess"),
        (["hello", "--stop", ""], "stop takes strings"),
        (["hello", "--logit-bias", "x"], "ID=BIAS"),
        (["hello", "--draft", "none", "--drafter", "model"], "no draft model"),
        (["hello", "--raw", "--system", "x"], "chat template"),
        (["", "--raw"], "prompt is empty"),
        (["   "], "message is empty"),
        (["word " * 400, "-c", 256], "256"),
        (["-"], "message is empty"),
    ],
)
def test_bad_input_gets_a_named_error(tiny_target: Path, args: list[object], message: str) -> None:
    ended = call("run", "--target", tiny_target, *args)
    assert_named_error(ended)
    assert message in ended.stderr


def test_incompatible_vocabularies_are_refused(tiny_target: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    tiny_models.write_llama(other, vocab="plain")
    ended = call("run", "-m", tiny_target, "-md", other, "hello")
    assert_named_error(ended)
    assert "differ" in ended.stderr
    assert "--draft none" in ended.stderr


def test_standard_input_that_is_not_text_is_named(tiny_target: Path) -> None:
    ended = call("run", "-m", tiny_target, "-", stdin=b"\xff\xfe\x00")
    assert_named_error(ended)
    assert "UTF-8" in ended.stderr


def test_unknown_names_are_told_the_nearest() -> None:
    ended = call("run", "-m", "qwen2.5-coder-1.5", "hello")
    assert_named_error(ended)
    assert "qwen2.5-coder-1.5b" in ended.stderr


def test_quantize_makes_another_level_and_says_what_was_lost(
    tmp_path: Path, tiny_target: Path
) -> None:
    out = tmp_path / "out.gguf"
    first = call("quantize", tiny_target, out, "--type", "q8_0")
    assert (first.returncode, first.stdout) == (0, "")
    assert "wrote" in first.stderr
    assert "Q8_0" in call("models", "show", out).stdout
    assert_named_error(call("quantize", tiny_target, out, "--type", "q8_0"))
    again = call("quantize", out, tmp_path / "again.gguf", "--type", "Q4_0")
    assert "is Q8_0 already" in again.stderr
    assert_named_error(call("quantize", tiny_target, tmp_path / "x.gguf", "--type", "Q99"))
    assert_named_error(call("quantize", tiny_target, tiny_target, "--type", "Q8_0"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.gguf", "out.gguf"]


def test_help_answers_without_the_engine() -> None:
    code = (
        "import sys; from localspec.cli.main import cli; "
        "cli.main(['--help'], standalone_mode=False); "
        "print([m for m in ('numpy', 'llama_cpp', 'textual', 'rich') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip().endswith("[]")
    assert call("--version").stdout.startswith("localspec")


def assert_named_error(ended: subprocess.CompletedProcess[str]) -> None:
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.strip()


def in_shell(words: list[object], redirection: str) -> subprocess.CompletedProcess[str]:
    """The command with its streams as a shell sets them up."""
    command = " ".join(map(shlex.quote, [*LOCALSPEC, *map(str, words)]))
    return subprocess.run(
        ["sh", "-c", f"{command} {redirection}"],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": _CACHE.name},
        timeout=60,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_disk_behind_stdout_is_a_named_error(
    more: list[object], run_pair: list[object]
) -> None:
    for words in ([*run_pair, "-t", 1, "hello", *more], ["--help"], ["models", "list"]):
        ended = in_shell(words, "> /dev/full")
        assert ended.returncode == 2, ended.stderr
        assert "the output cannot be written" in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="closes streams as a POSIX shell does")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_stop_the_command(closed: str, run_pair: list[object]) -> None:
    ended = in_shell([*run_pair, "-t", 1, "hello"], closed)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert in_shell(["--version"], closed).returncode == 0


def test_a_home_that_is_no_folder_has_no_settings(
    run_pair: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCALSPEC_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
    ended = call(*run_pair, "hello")
    assert ended.returncode == 0, ended.stderr


def test_ctrl_c_ends_a_quantisation_and_leaves_nothing(
    tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native call runs in a process that is killed; here one that would take a minute."""
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(quantizing, "module_command", lambda _: slow)

    def interrupt(_header: object, temporary: Path) -> None:
        temporary.write_bytes(b"half")
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        quantize(tiny_target, tmp_path / "out.gguf", "Q8_0", on_start=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_quantiser_that_dies_is_a_named_error(
    tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = [sys.executable, "-c", "import os; os.abort()"]
    monkeypatch.setattr(quantizing, "module_command", lambda _: dying)
    with pytest.raises(EngineError, match="killed by SIGABRT"):
        quantize(tiny_target, tmp_path / "out.gguf", "Q8_0")


def test_the_wide_tables_take_types_of_their_own(tiny_target: Path, tmp_path: Path) -> None:
    def types(header: GGUFHeader) -> dict[str, str]:
        return {tensor.name: tensor.type_name for tensor in header.tensors}

    usual = types(quantize(tiny_target, tmp_path / "usual.gguf", "Q4_0"))
    made = types(
        quantize(
            tiny_target,
            tmp_path / "made.gguf",
            "Q4_0",
            output_type="q5_1",
            embedding_type="Q8_0",
        )
    )
    assert (made["output.weight"], made["token_embd.weight"]) == ("Q5_1", "Q8_0")
    assert {name for name in made if made[name] != usual[name]} == {
        "output.weight",
        "token_embd.weight",
    }
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InvalidOptionError, match=r"rows of 64, which Q4_K cannot cut.*Q8_0"):
        quantize(tiny_target, tmp_path / "bad.gguf", "Q4_0", output_type="Q4_K")
    with pytest.raises(InvalidOptionError, match="unknown type 'I8' for the embedding table"):
        quantize(tiny_target, tmp_path / "bad.gguf", "Q4_0", embedding_type="I8")
    assert sorted(tmp_path.iterdir()) == before


def test_one_table_for_both_ends_has_one_type(tiny_target: Path, tmp_path: Path) -> None:
    tied = without_tensor(tiny_target, tmp_path / "tied.gguf", "output.weight")
    made = quantize(tied, tmp_path / "made.gguf", "Q8_0", output_type="Q4_1")
    assert {t.name: t.type_name for t in made.tensors}["token_embd.weight"] == "Q4_1"
    with pytest.raises(InvalidOptionError, match="one table for both input and output"):
        quantize(tied, tmp_path / "no.gguf", "Q8_0", output_type="Q4_1", embedding_type="Q8_0")


_GONE = """
import sys
from pathlib import Path
from localspec.llama import quantize as quantizing

print(flush=True)
quantizing.module_command = lambda name: [sys.executable, "-c", SLOW]
quantizing.write_level(Path("a"), Path("b"), 7, 1, None)
"""
_SLOW = """
import os, sys, threading, time
from pathlib import Path
from localspec.llama import quantize as quantizing

def slow(**_):
    Path(FILE).write_text(str(os.getpid()))
    time.sleep(60)

quantizing._write = slow
sys.exit(quantizing.main())
"""


def test_a_quantiser_whose_parent_is_killed_ends(tmp_path: Path) -> None:
    """Nothing asks for its work any more, which may take hours."""
    told = tmp_path / "pid"
    slow = f"FILE = {str(told)!r}\n{_SLOW}"
    parent = subprocess.Popen([sys.executable, "-c", f"SLOW = {slow!r}\n{_GONE}"])
    deadline = time.monotonic() + 60
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    pid = int(told.read_text())
    while _is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")  # where there is none, nobody leaves zombies either
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
