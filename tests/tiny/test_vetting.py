"""A file is tried in a process of its own before it is loaded here, once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.errors import ModelFileError
from localspec.gguf.header import read_header
from localspec.llama import probe
from localspec.llama.architectures import knows_architecture
from localspec.llama.probe import probe as real_probe  # before the fixtures replace it
from localspec.session.session import Session
from tests import tiny_models
from tests.gguf_edit import edit

HEAD = "import json, os, sys\n"


@pytest.fixture(autouse=True)
def real_trials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(probe, "probe", real_probe)
    return


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is run in place of the trial."""
    path = tmp_path / "scripted_trial.py"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [sys.executable, "-m", "scripted_trial"]
    monkeypatch.setattr(probe, "module_command", lambda module: command)
    return path


def test_a_sound_model_is_tried_once(
    tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_target.read_bytes())
    tried: list[Path] = []

    def counted(path: Path, size_bytes: int) -> str | None:
        tried.append(path)
        return real_probe(path, size_bytes)

    monkeypatch.setattr(probe, "probe", counted)
    for _ in range(2):
        with Session(path) as session:
            assert session.notes == []
    assert tried == [path]
    os.utime(path, ns=(1, 1))  # another file, for all that can be told
    Session(path).close()
    assert tried == [path, path]


def test_a_native_abort_becomes_an_error(tmp_path: Path) -> None:
    """What the reader cannot know: this one passes it, and an assertion of llama.cpp ends it."""
    path = tiny_models.write_gemma_swa(tmp_path / "m.gguf")
    edit(path, "gemma3.attention.sliding_window_pattern", 1)
    with pytest.raises(ModelFileError, match=r"llama.cpp dies of it .*GGML_ASSERT"):
        probe.vetted_header(path, "target", [])


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    path = edit(tiny_models.write_llama(tmp_path / "m.gguf"), "general.architecture", b"lLama")
    for key in ("block_count", "embedding_length", "context_length", "attention.head_count"):
        header = path.read_bytes()
        path.write_bytes(header.replace(b"llama." + key.encode(), b"lLama." + key.encode()))
    with pytest.raises(ModelFileError, match="the architecture 'lLama', which this build"):
        probe.vetted_header(path, "target", [])


def test_known_architectures() -> None:
    assert all(knows_architecture(name) for name in ("llama", "qwen2", "gemma3", "mamba", "clip"))
    assert not knows_architecture("llama99")


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("print('x.cpp:3: GGML_ASSERT(a == b) failed', file=sys.stderr, flush=True); os.abort()",
         r"killed by SIGABRT, saying: x.cpp:3: GGML_ASSERT\(a == b\) failed"),
        ("os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("os._exit(3)", "ended with code 3"),
        ("print(json.dumps({'refused': 'no room'}))", "no room"),
    ],
)  # fmt: skip
def test_every_end_of_the_trial_has_words(
    trial: Path, tiny_target: Path, code: str, complaint: str
) -> None:
    trial.write_text(HEAD + code)
    with pytest.raises(ModelFileError, match=complaint):
        probe.probe(tiny_target, 1000)


def test_a_trial_that_does_not_end(
    trial: Path, tiny_target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_START_S", 0.3)
    trial.write_text("import time\ntime.sleep(60)")
    with pytest.raises(ModelFileError, match="did not come to an end"):
        probe.probe(tiny_target, 1)


def test_a_trial_that_cannot_be_made_is_told_and_the_load_goes_on(
    tiny_target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_target.read_bytes())
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with Session(path) as session:
        assert any("was not tried out" in note for note in session.notes)


def test_it_works_from_a_bare_interpreter(tiny_target: Path, tmp_path: Path) -> None:
    """No main module that could be imported again: as in a notebook, or on standard input."""
    code = (
        f"from localspec.llama.probe import probe\nfrom pathlib import Path\n"
        f"print(probe(Path({str(tiny_target)!r}), 1000))"
    )
    for command in ([sys.executable, "-c", code], [sys.executable, "-"]):
        ended = subprocess.run(
            command, input=code, capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(probe.__file__).parents[2])},
        )  # fmt: skip
        assert ended.stdout.strip() == "None", ended.stderr


def test_a_path_in_any_script(tmp_path: Path) -> None:
    folder = tmp_path / "Модели 模型\u3000é"
    folder.mkdir()
    path = tiny_models.write_llama(folder / "模.gguf", vocab="bytes")
    assert probe.probe(path, path.stat().st_size) is None
    assert read_header(path).n_vocab > 0
