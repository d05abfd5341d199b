"""Flags > environment > file > defaults; what is not understood is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli.settings import config, default_map, read_settings
from localspec.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(path))
    return path


def test_without_a_file_nothing_is_set(file: Path) -> None:
    assert read_settings({}) == {}


def test_the_environment_wins_over_the_file(file: Path) -> None:
    file.write_text('target = "a"\ntemperature = 0.5\n[chat]\ntheme = "light"\n')
    settings = read_settings({"LOCALSPEC_TEMPERATURE": "0.25", "LOCALSPEC_EXACT": "yes"})
    assert settings["target"].value == "a"
    assert settings["temperature"].value == 0.25
    assert settings["temperature"].origin == "LOCALSPEC_TEMPERATURE"
    assert settings["exact"].value is True
    maps = default_map(settings)
    assert maps["run"] == {"target": "a", "temperature": 0.25, "exact": True}
    assert maps["chat"]["theme"] == "light"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temprature = 1", "did you mean temperature"),
        ("[chat]\ntheme = 'pink'", "dark, light"),
        ("theme = 'dark'", r"did you mean theme \(in \[chat\]\)"),
        ("temperature = -1", "temperature"),
        ("temperature = 'hot'", "must be a number"),
        ("n_ctx = 1.5", "whole number"),
        ("drafter = 'nobody'", "choose one of"),
        ("target = 3", "must be text"),
        ("chat = 3", "must be a table"),
        ("nonsense", "cannot be read"),
        ("zzz = 1", "the keys are"),
        ("[chat]\ncolour = 1", "unknown key 'colour' in"),
    ],
)
def test_what_is_not_understood_is_told(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_settings({})


def test_a_wrong_variable_is_told_by_its_name(file: Path) -> None:
    with pytest.raises(ConfigError, match="LOCALSPEC_TOP_K"):
        read_settings({"LOCALSPEC_TOP_K": "many"})


def test_the_command_shows_where_each_was_set(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("top_k = 5\n")
    monkeypatch.setenv("LOCALSPEC_THEME", "light")
    shown = CliRunner().invoke(config, ["show"]).output
    assert f"top_k = 5  ({file})" in shown
    assert "chat.theme = 'light'  (LOCALSPEC_THEME)" in shown
    assert CliRunner().invoke(config, ["path"]).output.strip() == str(file)


def test_edit_makes_the_file_and_checks_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "true")
    assert CliRunner().invoke(config, ["edit"]).exit_code == 0
    assert "# temperature = 0.8" in file.read_text()
    assert read_settings({}) == {}
    monkeypatch.setenv("VISUAL", "no-such-editor")
    with pytest.raises(ConfigError, match="did not work"):
        CliRunner().invoke(config, ["edit"], catch_exceptions=False)
    monkeypatch.setenv("VISUAL", "false")
    with pytest.raises(ConfigError, match=f"false ended with 1; the settings are in {file}"):
        CliRunner().invoke(config, ["edit"], catch_exceptions=False)
    monkeypatch.setenv("VISUAL", "  ")
    with pytest.raises(ConfigError, match=r"set \$EDITOR"):
        CliRunner().invoke(config, ["edit"], catch_exceptions=False)


def test_a_byte_order_mark_and_its_line_ends_are_read_over(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbftop_k = 5\r\n[chat]\r\ntheme = 'light'\r\n")
    assert {key: s.value for key, s in read_settings({}).items()} == {"top_k": 5, "theme": "light"}


def test_the_home_of_nobody_is_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG", "~no-such-person/c.toml")
    with pytest.raises(ConfigError, match="LOCALSPEC_CONFIG"):
        read_settings({})
