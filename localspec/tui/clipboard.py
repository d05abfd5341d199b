"""Copying: OSC 52 through the terminal, and the platform's own tool where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

__all__ = ["copy_by_tool", "tool"]


def tool(platform: str = sys.platform, env: Mapping[str, str] | None = None) -> list[str] | None:
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


def copy_by_tool(text: str) -> bool:
    """True when a tool took it."""
    command = tool()
    if command is None:
        return False
    encoded = text.encode("utf-16-le" if command == ["clip"] else "utf-8", "replace")
    try:
        quiet = subprocess.DEVNULL
        subprocess.run(command, input=encoded, stdout=quiet, stderr=quiet, timeout=2, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True
