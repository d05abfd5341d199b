"""The command `localspec`: dispatch, and how failures look to a person.

Sub-commands are imported when they are named, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from localspec import __version__
from localspec.errors import CancelledError, LocalspecError
from localspec.visible import visible

__all__ = ["cli", "main"]

EXIT_NAMED_ERROR = 2
EXIT_INTERRUPTED = 130
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EIO)

_COMMANDS = {
    "chat": ("localspec.cli.chat", "chat", "Chat on the terminal, and see the draft tokens."),
    "run": ("localspec.cli.run", "run", "Answer a prompt; text goes to stdout."),
    "audit": ("localspec.cli.audit", "audit", "Is speculative text the plain text?"),
    "calibrate": ("localspec.cli.calibrate", "calibrate", "Measure what decoding costs here."),
    "bench": ("localspec.cli.bench", "bench", "Which quants are fastest here, and their cost."),
    "replay": ("localspec.cli.replay", "replay", "What other drafts would have made of a trace."),
    "models": ("localspec.cli.models_commands", "models", "List, fetch and inspect models."),
    "quantize": ("localspec.cli.models_commands", "quantize", "Make another quant level."),
    "config": ("localspec.cli.settings", "config", "The settings file."),
    "doctor": ("localspec.cli.doctor", "doctor", "What this machine has, and what is missing."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader (head, less) had enough
            _silence_stdout()
            sys.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="localspec")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Faster answers from a local model, without changing what it says.

    A small draft model proposes tokens, the large target model checks all of them in one pass; the
    text keeps the target's own law.
    """
    if ctx.invoked_subcommand is None and sys.stdin.isatty() and sys.stdout.isatty():
        ctx.default_map = _settings()
        command = ctx.command.get_command(ctx, "chat")  # type: ignore[attr-defined]
        with command.make_context("chat", [], parent=ctx) as chat:
            command.invoke(chat)
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    elif ctx.invoked_subcommand in ("run", "chat"):
        ctx.default_map = _settings()


def _settings() -> dict[str, Any]:
    from localspec.cli.settings import default_map, read_settings

    return dict(default_map(read_settings()))


def _silence_stdout() -> None:
    """What is still buffered goes nowhere: Python would complain again when it flushes."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """A stream that was closed (`>&-`) is None in Python; what is written to it is not wanted."""
    # In the order of their numbers, so that no model file is opened as number 1 and printed to.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 (open to the end)
            setattr(sys, name, nowhere)


def main(argv: list[str] | None = None) -> None:
    """Entry point. Exit codes: 0; 2 for every named error; 130 for Ctrl-C; 1 for a bug."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")
    try:
        cli.main(args=argv, prog_name="localspec", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_NAMED_ERROR)
    except CancelledError:
        click.echo("localspec: interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except LocalspecError as error:
        click.echo(f"localspec: {visible(str(error))}", err=True)
        sys.exit(EXIT_NAMED_ERROR)
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        click.echo(f"localspec: the output cannot be written: {error.strerror}", err=True)
        _silence_stdout()
        sys.exit(EXIT_NAMED_ERROR)
    except (KeyboardInterrupt, click.Abort):
        click.echo("localspec: interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
