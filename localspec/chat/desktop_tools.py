"""Programs of the person's desktop: the text editor, and what fills the clipboard."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from localspec.errors import ConfigError

__all__ = ["clipboard_command", "copy_to_desktop", "edit_file", "require_editor"]


def require_editor() -> str:
    """The command in $VISUAL, else $EDITOR. Raises ConfigError when neither says one."""
    editor = (os.environ.get("VISUAL") or os.environ.get("EDITOR") or "").strip()
    if not editor:
        raise ConfigError("set $EDITOR (or $VISUAL) to the editor of your choice")
    return editor


def edit_file(path: Path) -> None:
    """Open a file in it and wait. Raises ConfigError when it cannot start, or fails."""
    editor = require_editor()
    try:
        subprocess.run([*shlex.split(editor), str(path)], check=True)
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"{editor} ended with {error.returncode}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{editor} did not work: {error}") from None


def clipboard_command(
    platform: str = sys.platform, env: Mapping[str, str] | None = None
) -> list[str] | None:
    """The command that takes a text on its standard input, None when there is none."""
    env = os.environ if env is None else env
    if env.get("SSH_CONNECTION"):  # its clipboard would be the other machine's
        return None
    wanted: list[list[str]] = []
    if platform == "darwin":
        wanted = [["pbcopy"]]
    elif platform == "win32":
        wanted = [["clip"]]
    elif env.get("WAYLAND_DISPLAY"):
        wanted = [["wl-copy"]]
    elif env.get("DISPLAY"):
        wanted = [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    return next((command for command in wanted if shutil.which(command[0])), None)


def copy_to_desktop(text: str) -> bool:
    """True when a tool took it."""
    command = clipboard_command()
    if command is None:
        return False
    encoded = text.encode("utf-16-le" if command == ["clip"] else "utf-8", "replace")
    try:
        quiet = subprocess.DEVNULL
        subprocess.run(command, input=encoded, stdout=quiet, stderr=quiet, timeout=2, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True
