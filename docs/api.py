"""Write docs/api.md from the docstrings of the public names.

python docs/api.py           # write it
python docs/api.py --check   # exit 1 when it is stale, as a test does
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from pathlib import Path
from typing import Any

import localspec

PAGE = Path(__file__).with_name("api.md")

GROUPS: dict[str, tuple[str, ...]] = {
    "Load and ask": ("load", "Session", "LoadOptions", "Options"),
    "Answers": ("Completion", "Promise", "Recipe", "ToolCall", "Answered", "AsyncEvents", "Branch"),
    "Events": ("Event", "Prefill", "Round", "RoundToken",
 "TokenLogprob",
 "TopLogprob", "Alternative", "Finished", "Stats"),
    "Drafters and controllers of your own": (
        "Guesser", "Predictor", "Drafter", "Draft", "Distribution", "Vocabulary", "Controller",
        "Pace",
    ),
    "Plain data": ("to_dict", "to_json"),
}  # fmt: skip

INTRODUCTION = """# API

Made from the docstrings by `python docs/api.py`; a test says when it is stale. Everything here is
imported from `localspec` itself. What begins with an underscore, and modules not reached from
here, may change at any time. The command line, [the tutorial](tutorial.md) and
[the algorithm](algorithm.md) have pages of their own.
"""

ERRORS = """## Errors

Every error that a user can cause is a `localspec.LocalspecError`, with a text that says what is
wrong and what to do next. An exception of another kind is a bug (or Python's own, such as
KeyboardInterrupt).
"""


def page() -> str:
    """The whole page."""
    grouped = {name for names in GROUPS.values() for name in names}
    left = [n for n in localspec.__all__ if n not in grouped and not n.endswith("Error")]
    assert not left, f"docs/api.py has no group for {left}"
    parts = [INTRODUCTION]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [_entry(name, getattr(localspec, name)) for name in names]
    parts += [ERRORS, _errors()]
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> str:
    if inspect.isfunction(thing):
        return f"### {name}\n\n```\n{name}{_signature(thing)}\n```\n\n{_doc(thing)}\n"
    if not inspect.isclass(thing):
        return f"### {name}\n\n`{name} = {_union(thing)}`\n"
    if dataclasses.is_dataclass(thing):
        head = _fields(name, thing)
    elif getattr(thing, "_is_protocol", False):
        head = f"A protocol: any object with these methods.\n\n{_doc(thing)}\n"
    else:
        head = f"{_doc(thing)}\n"
    return f"### {name}\n\n{head}{_methods(thing)}"


def _fields(name: str, thing: Any) -> str:
    lines = []
    for field in dataclasses.fields(thing):
        value = ""
        if field.default is not dataclasses.MISSING:
            value = f" = {field.default!r}"
        elif field.default_factory is not dataclasses.MISSING:
            value = f" = {field.default_factory()!r}"
        lines.append(f"    {field.name}: {field.type}{value}")
    return f"```\n{name}(\n" + ",\n".join(lines) + f",\n)\n```\n\n{_doc(thing)}\n"


def _methods(thing: Any) -> str:
    found = []
    for name in dir(thing):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(thing, name)
        if isinstance(member, (property,)) or type(member).__name__ == "cached_property":
            found.append(f"- `{name}`: {_doc(member, '  ')}")
        elif isinstance(member, classmethod):
            found.append(f"- `{name}{_signature(getattr(thing, name))}`: {_doc(member, '  ')}")
        elif isinstance(member, types.FunctionType):
            is_async = "await " if inspect.iscoroutinefunction(member) else ""
            found.append(f"- `{is_async}{name}{_signature(member)}`: {_doc(member, '  ')}")
    return "\n" + "\n".join(found) + "\n" if found else ""


def _signature(function: Any) -> str:
    """Written here, since Python's versions quote annotations differently."""
    signature = inspect.signature(function)
    parts: list[str] = []
    was_starred = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not was_starred:
            parts.append("*")
            was_starred = True
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        is_plain = parameter.default is parameter.empty
        value = "" if is_plain else f" = {parameter.default!r}"
        parts.append(f"{stars}{parameter.name}: {parameter.annotation}{value}")
    return f"({', '.join(parts)}) -> {signature.return_annotation}"


def _doc(thing: Any, indent: str = "") -> str:
    text = inspect.getdoc(thing) or ""
    return text.replace("\n", "\n" + indent).replace("\n" + indent + "\n", "\n\n")


def _union(thing: Any) -> str:
    return " | ".join(kind.__name__ for kind in thing.__args__)


def _errors() -> str:
    names = [name for name in localspec.__all__ if name.endswith("Error")]
    kinds = [getattr(localspec, name) for name in names]
    lines: list[str] = []

    def tell(kind: type, depth: int) -> None:
        also = [b.__name__ for b in kind.__bases__ if b.__module__ == "builtins" and depth]
        is_also = f" (a {', '.join(also)} too)" if also else ""
        lines.append(f"{'  ' * depth}- `{kind.__name__}`{is_also}: {inspect.getdoc(kind)}")
        for child in sorted(kinds, key=lambda k: k.__name__):
            if kind in child.__bases__:
                tell(child, depth + 1)

    tell(localspec.LocalspecError, 0)
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check."""
    made = page()
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text("utf-8") != made)
    PAGE.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
