"""Drafters and controllers that installed packages offer by name, through entry points.

    [project.entry-points."localspec.drafters"]
    phrases = "my_package:PhraseTable"

An entry is a callable: a drafter's is called with the target's Vocabulary, a controller's without
arguments. It is imported when it is asked for by name. Knows nothing of what they do.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeAlias

from localspec.errors import InvalidOptionError, PluginError

__all__ = ["Kind", "plugin", "plugin_names", "require_plugin"]

Kind: TypeAlias = Literal["drafters", "controllers"]


def plugin_names(kind: Kind) -> list[str]:
    """What is installed, sorted."""
    return sorted(_found(kind))


def require_plugin(kind: Kind, name: str, built_in: tuple[str, ...]) -> None:
    """Raise InvalidOptionError, with what there is, unless a package offers this name."""
    if name in _found(kind):
        return
    known = [*built_in, *plugin_names(kind)]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(known) or 'none'}"
    singular = kind.removesuffix("s")
    raise InvalidOptionError(
        f"{singular} is {name!r}: {hint} (no installed package offers that name under the "
        f'entry points "localspec.{kind}")'
    )


def plugin(kind: Kind, name: str) -> Callable[..., Any]:
    """The callable behind a name. Raises PluginError when it cannot be imported."""
    require_plugin(kind, name, ())
    entry = _found(kind)[name]
    try:
        made = entry.load()
    except Exception as error:
        raise PluginError(
            f"the {kind.removesuffix('s')} {name} ({entry.value}{_package(entry)}) cannot be "
            f"imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(made):
        raise PluginError(
            f"the {kind.removesuffix('s')} {name} ({entry.value}{_package(entry)}) is "
            f"{type(made).__name__}: an entry point must name a callable"
        )
    found: Callable[..., Any] = made
    return found


@functools.cache
def _found(kind: Kind) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"localspec.{kind}")}


def _package(entry: EntryPoint) -> str:
    return f", package {entry.dist.name}" if entry.dist is not None else ""
