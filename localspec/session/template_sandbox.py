"""A jinja2 environment for templates that come with a model file: nobody has read them.

jinja2's immutable sandbox keeps them from everything but their arguments. This one also bounds
what they may compute: loops, calls and filters are counted and the time is looked at, and every
way that a text can grow is measured before it grows. Knows nothing of messages or tokens.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import Any, TypeVar

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

__all__ = ["BoundedEnvironment", "TemplateLimitError", "bounded", "limited"]

MAX_SECONDS = 5.0  # of this thread's own computing
MAX_STEPS = 2_000_000
MAX_TEXT = 4_000_000  # characters, beyond four times what the template was given
_MAX_DIGITS = 4096  # bits of a whole number
_LOOK_EVERY = 256  # steps between two looks at the clock
_WIDE = re.compile(r"%[^a-zA-Z%]*(\d{6,}|\*)|\{[^}]*(\d{6,}|\{)")  # a format with a huge field
_PRODUCED = 64  # times the longest text that is allowed: everything made, kept or not
_SEQUENCES = (str, list, tuple)
_GROWS_BY_FACTOR = ("replace", "indent", "join", "center", "ljust", "rjust", "zfill", "batch",
                    "slice", "expandtabs", "tojson", "sum")  # fmt: skip

T = TypeVar("T")


class TemplateLimitError(Exception):
    """The template computed for too long, or made too much."""


class _Meter:
    def __init__(self, max_text: int) -> None:
        self._max_text = max_text
        self._steps = 0
        self._made = 0
        self._ends = time.thread_time() + MAX_SECONDS

    def step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TemplateLimitError(f"it takes more than {MAX_STEPS:,} steps")
        if self._steps % _LOOK_EVERY == 0:
            self.look()

    def look(self) -> None:
        if time.thread_time() > self._ends:
            raise TemplateLimitError(f"it computes for more than {MAX_SECONDS:.0f} s")

    def size(self, n: int) -> None:
        if n > self._max_text:
            raise TemplateLimitError(f"it makes more than {self._max_text:,} characters")

    def made(self, n: int) -> None:
        """Count a new text or list of n elements."""
        self.size(n)
        self._made += n
        self.size(self._made // _PRODUCED)


_METER: ContextVar[_Meter] = ContextVar("meter")


def bounded(work: Callable[[], T], n_given: int = 0) -> T:
    """Compile or render something within the limits. n_given: characters that it was given.

    Raises TemplateLimitError, and whatever the template raises.
    """
    token = _METER.set(_Meter(MAX_TEXT + 4 * n_given))
    try:
        return work()
    except (MemoryError, RecursionError, OverflowError) as error:
        raise TemplateLimitError(
            f"it computes too much ({error or type(error).__name__})"
        ) from None
    finally:
        _METER.reset(token)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compile and render with `bounded`; outside of it there are no limits to be had."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters = {name: limited(name, f) for name, f in self.filters.items()}
        self.filters["_metered"] = _metered
        self.filters["_joined"] = _joined
        self.globals.pop("lipsum", None)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """A text, list or number that would become too large is refused before it is made."""
        _require_small(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Every call counts; methods that make long texts are measured."""
        method = getattr(__obj, "__wrapped__", __obj)  # jinja2 wraps str.format
        owner = getattr(method, "__self__", None)
        name = getattr(__obj, "__name__", "")
        _before(name, (owner, *args), kwargs)
        if name == "join" and args:
            args = (_weighed(args[0]), *args[1:])
        return _after(super().call(__context, __obj, *args, **kwargs))

    def concat(self, pieces: Iterable[str]) -> str:
        """Joins the output of a template, a macro, or a block."""
        meter = _METER.get()
        found, total = [], 0
        for piece in pieces:
            total += len(piece)
            meter.size(total)
            meter.look()
            found.append(piece)
        return "".join(found)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Before compiling: every loop goes through `_metered`, `~` through `_joined`."""
        bounded_source = _Bound().visit(source)
        bounded_source.set_environment(self)
        return super()._generate(bounded_source, *args, **kwargs)


class _Bound(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "_metered", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        pieces = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(pieces, "_joined", [], [], None, None, lineno=node.lineno)


class _Metered:
    """An iterable that counts; as long as the one that it stands for, where that has a length."""

    def __init__(self, inner: Iterable[Any]) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[Any]:
        meter = _METER.get()
        for item in self._inner:
            meter.step()
            yield item

    def __len__(self) -> int:
        if not isinstance(self._inner, Sized):
            raise TypeError("no length")
        return len(self._inner)


@jinja2.pass_context  # so that it is never evaluated while the template is compiled
def _metered(context: Any, inner: Any) -> Any:
    return _Metered(inner)


@jinja2.pass_context
def _joined(context: Any, pieces: list[Any]) -> str:
    texts = [str(piece) for piece in pieces]
    _METER.get().size(sum(map(len, texts)))
    return "".join(texts)


def limited(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that counts and measures; what jinja2 marked it with is kept."""

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _before(name, args, kwargs)
        if name == "join":  # its first argument is jinja2's own, its second what is joined
            args = (args[0], _weighed(args[1]), *args[2:])
        return _after(original(*args, **kwargs))

    return wrapped


def _weighed(pieces: Any) -> Any:
    """What is to be joined, its length known before it is."""
    if isinstance(pieces, str) or not isinstance(pieces, Iterable):
        return pieces
    return _weigh(pieces)


def _weigh(pieces: Iterable[Any]) -> Iterator[Any]:
    meter, total = _METER.get(), 0
    for piece in pieces:
        meter.step()
        total += len(piece) if isinstance(piece, str) else 1
        meter.size(total)
        yield piece


def _before(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    meter = _METER.get()
    meter.step()
    values = [value for value in (*args, *kwargs.values()) if not isinstance(value, bool)]
    texts = [value for value in values if isinstance(value, _SEQUENCES)]
    if name in _GROWS_BY_FACTOR:
        longest = max((len(value) for value in texts), default=1)
        numbers = [value for value in values if isinstance(value, int)]
        others = sorted((len(value) for value in texts), reverse=True)[1:]
        meter.size(max(1, longest) * max([1, *numbers, *others]) // 4)
    if name in ("format", "format_map"):
        _require_plain_format(texts[0] if texts else "")


def _after(found: Any) -> Any:
    if isinstance(found, _SEQUENCES):
        _METER.get().made(len(found))
    return found


def _require_small(operator: str, left: Any, right: Any) -> None:
    meter = _METER.get()
    meter.step()
    if operator == "+" and isinstance(left, _SEQUENCES) and isinstance(right, _SEQUENCES):
        meter.made(len(left) + len(right))
    elif operator == "*":
        for sequence, n in ((left, right), (right, left)):
            if isinstance(sequence, _SEQUENCES) and isinstance(n, int):
                meter.made(len(sequence) * max(0, n))
        if isinstance(left, int) and isinstance(right, int):
            _require_digits(left.bit_length() + right.bit_length())
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _require_digits(left.bit_length() * max(0, right))
    elif operator == "%" and isinstance(left, str):
        _require_plain_format(left)


def _require_digits(n_bits: int) -> None:
    if n_bits > _MAX_DIGITS:
        raise TemplateLimitError(f"it makes a number of {n_bits:,} bits")


def _require_plain_format(form: Any) -> None:
    if isinstance(form, str) and _WIDE.search(form):
        raise TemplateLimitError("it formats a field of 100,000 characters or more")
