"""The person's own text editor."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from localspec.errors import ConfigError

__all__ = ["edit_file", "require_editor"]


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
