"""Settings: flags > environment (LOCALSPEC_*) > TOML file > defaults. Unknown keys are refused.

The file holds the options of `run` and `chat` under their long names, and what only the chat has
in a table [chat]:

    target = "qwen2.5-coder-7b"
    temperature = 0.7

    [chat]
    theme = "light"
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import platformdirs

from localspec.chat.desktop_tools import edit_file, require_editor
from localspec.cli.options import ANSWERING, LOADING
from localspec.errors import ConfigError, InvalidOptionError
from localspec.visible import visible

__all__ = ["CHAT_KEYS", "Setting", "config", "default_map", "read_settings", "settings_path"]

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


SHARED_KEYS = ("target", "draft", *(key for key in LOADING), *(key for key in ANSWERING
               if key != "logit_bias"))  # fmt: skip
CHAT_KEYS = {
    "theme": ("dark", "light", "contrast", "ansi"),
    "view": ("off", "inline", "inspector"),
    "system": None,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it was set: the file, or the environment variable's name."""

    value: Any
    origin: str


def settings_path() -> Path:
    """$LOCALSPEC_CONFIG, else config.toml in the platform's folder for settings.

    Raises ConfigError for the home folder of somebody who is not here.
    """
    own = os.environ.get("LOCALSPEC_CONFIG")
    if own:
        try:
            return Path(own).expanduser()
        except RuntimeError as error:  # "~nobody"
            raise ConfigError(f"LOCALSPEC_CONFIG is {own!r}: {error}") from None
    return Path(platformdirs.user_config_dir("localspec", appauthor=False)) / "config.toml"


def read_settings(env: Mapping[str, str] | None = None) -> dict[str, Setting]:
    """What file and environment set, by key. Raises ConfigError that names the place."""
    env = os.environ if env is None else env
    found = _from_file(settings_path())
    for key in (*SHARED_KEYS, *CHAT_KEYS):
        name = f"LOCALSPEC_{key.upper()}"
        if env.get(name):
            found[key] = Setting(_checked(key, env[name], name), name)
    _check_together(found)
    return found


def default_map(settings: Mapping[str, Setting]) -> dict[str, dict[str, Any]]:
    """Defaults of the commands' options, for click."""
    shared = {key: settings[key].value for key in SHARED_KEYS if key in settings}
    chat = {key: settings[key].value for key in CHAT_KEYS if key in settings}
    return {"run": shared, "chat": {**shared, **chat}}


def _from_file(path: Path) -> dict[str, Setting]:
    try:
        document = tomllib.loads(path.read_text("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):  # HOME may be /dev/null
        return {}
    except (OSError, ValueError, RecursionError) as error:  # ValueError: bad TOML, bad UTF-8
        raise ConfigError(f"the settings file {path} cannot be read: {error}") from None
    chat = document.pop("chat", {})
    if not isinstance(chat, dict):
        raise ConfigError(f"{path}: `chat` must be a table, [chat]")
    found = {}
    for table, keys, where in ((document, SHARED_KEYS, ""), (chat, tuple(CHAT_KEYS), " in [chat]")):
        for key, value in table.items():
            if key not in keys:
                raise ConfigError(f"{path}: unknown key {key!r}{where}{_nearest(key)}")
            found[key] = Setting(_checked(key, value, f"{path}: {key}"), str(path))
    return found


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key, [*SHARED_KEYS, *CHAT_KEYS], 1)
    if not near:
        return f"; the keys are {', '.join(SHARED_KEYS)}, and in [chat] {', '.join(CHAT_KEYS)}"
    table = " (in [chat])" if near[0] in CHAT_KEYS else ""
    return f": did you mean {near[0]}{table}?"


def _checked(key: str, value: Any, where: str) -> Any:
    allowed = CHAT_KEYS.get(key)
    if allowed is not None and value not in allowed:
        raise ConfigError(f"{where} is {value!r}: choose one of {', '.join(allowed)}")
    if isinstance(value, str):  # the environment's, or a word of the file
        return _typed(key, value, where)
    if key in ("target", "draft", "system") or isinstance(value, dict):
        raise ConfigError(f"{where} is {value!r}: it must be text")
    return value


def _typed(key: str, text: str, where: str) -> Any:
    import dataclasses
    from typing import get_args, get_type_hints

    from localspec.session.options import LoadOptions, Options

    if key in ("exact", "ignore_eos", "ignore_memory"):
        if text.lower() in ("1", "true", "yes", "on", "0", "false", "no", "off"):
            return text.lower() in ("1", "true", "yes", "on")
        raise ConfigError(f"{where} is {text!r}: it is true or false")
    if key in ("stop", "dry_sequence_breakers"):
        return [text]
    if key == "stop_ids":
        if not text.isdecimal():
            raise ConfigError(f"{where} is {text!r}: it must be a token id")
        return [int(text)]
    if key == "tensor_split":
        return text
    for kind in (LoadOptions, Options):
        if key not in {f.name for f in dataclasses.fields(kind)}:
            continue
        hint = get_type_hints(kind)[key]
        kinds = get_args(hint) or (hint,)
        try:
            return int(text) if int in kinds else float(text) if float in kinds else text
        except ValueError:
            raise ConfigError(f"{where} is {text!r}: it must be a number") from None
    return text


def _check_together(settings: Mapping[str, Setting]) -> None:
    """Values outside their range are told with the place that set them."""
    from localspec.session.options import LoadOptions, Options, parse

    for kind, keys in ((LoadOptions, LOADING), (Options, ANSWERING)):
        for key in keys:
            if key not in settings or key in ("tensor_split", "stop"):
                continue
            try:
                parse(kind, {key: settings[key].value})
            except (InvalidOptionError, TypeError) as error:
                raise ConfigError(f"{settings[key].origin}: {error}") from None


_FIRST_FILE = """\
# Settings of localspec. Flags win over the environment (LOCALSPEC_TEMPERATURE=0.2 …), and that
# wins over this file. Names are those of `localspec run --help`, with _ for -.

# target = "default"
# draft = "auto"
# temperature = 0.8
# n_ctx = 8192

[chat]
# theme = "dark"      # dark, light, contrast, ansi
# view = "inline"     # off, inline, inspector
# system = "Answer in one paragraph."
"""


@click.group()
def config() -> None:
    """The settings file: where it is, what holds, and an editor for it."""


@config.command()
def path() -> None:
    """Print where the file is."""
    click.echo(str(settings_path()))


@config.command()
def show() -> None:
    """Every setting that is not a default, and where it was set."""
    settings = read_settings()
    if not settings:
        click.echo(f"no setting differs from the defaults ({settings_path()})")
    for key, setting in settings.items():
        table = "chat." if key in CHAT_KEYS else ""
        click.echo(visible(f"{table}{key} = {setting.value!r}  ({setting.origin})"))


@config.command()
def edit() -> None:
    """Open the file in $EDITOR; it is made when it is missing, and checked afterwards."""
    file = settings_path()
    try:
        require_editor()
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_FIRST_FILE, "utf-8")
        edit_file(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{error}; the settings are in {file}") from None
    read_settings()
