"""The options of `run` for a schema, a grammar, choices, and log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from localspec.errors import InvalidOptionError

__all__ = ["structured", "structured_options"]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--json-schema", "-j", metavar="FILE|JSON", help="The answer is JSON valid under it."
    ),
    click.option("--grammar", metavar="FILE", help="The answer follows this GBNF grammar."),
    click.option("--choices", metavar="A,B,C", help="The answer is one of these."),
    click.option("--logprobs", type=int, help="Best N alternatives of each token, in --json."),
    click.option("--logprobs-of", type=click.Choice(["raw", "processed"])),
    click.option("--prompt-logprobs", type=int, help="The same for the prompt's tokens."),
)


def structured(command: F) -> F:
    """Add them to a command; structured_options() reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def structured_options(given: dict[str, Any]) -> dict[str, Any]:
    """What was given of them, as Options takes it. Raises InvalidOptionError for a bad file."""
    found: dict[str, Any] = {}
    schema = given["json_schema"]
    if schema is not None:
        inline = schema.lstrip()[:1] in ("{", "t")  # an object, or `true`
        found["json_schema"] = schema if inline else _text_of(schema, "--json-schema")
    if given["grammar"] is not None:
        found["grammar"] = _text_of(given["grammar"], "--grammar")
    if given["choices"] is not None:
        found["choices"] = tuple(choice.strip() for choice in given["choices"].split(","))
    for name in ("logprobs", "logprobs_of", "prompt_logprobs"):
        if given[name] is not None:
            found[name] = given[name]
    return found


def _text_of(path: str, option: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOptionError(f"{option}: {path} cannot be read: {error}") from None
