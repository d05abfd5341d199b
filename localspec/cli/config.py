"""`localspec config path|show|edit`."""

from __future__ import annotations

import click

from localspec.chat.editor import edit_file, require_editor
from localspec.cli.settings_file import CHAT_KEYS, read_settings, settings_path
from localspec.errors import ConfigError
from localspec.visible import visible

__all__ = ["config"]

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
