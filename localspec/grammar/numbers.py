"""Numbers within bounds as GBNF: digit by digit, in decimal notation."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

__all__ = ["INTEGER", "NUMBER", "Bounds", "decimals", "integers"]

_DIGITS = 16
INTEGER = '"-"? ("0" | [1-9] [0-9]{0,15})'
NUMBER = INTEGER + ' ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?'
_ANY_FRACTION = '("." [0-9]{1,16})?'
_SOME_FRACTION = '"." [0-9]{0,15} [1-9]'


@dataclass(frozen=True, slots=True)
class Bounds:
    """low ≤ x ≤ high, strictly where asked; None is without bound."""

    low: Decimal | None = None
    high: Decimal | None = None
    above: bool = False
    below: bool = False

    @property
    def free(self) -> bool:
        """True when every number lies within."""
        return self.low is None and self.high is None


def integers(bounds: Bounds) -> str | None:
    """GBNF of the whole numbers within, of up to 16 digits; None when there are none."""
    most = 10**_DIGITS - 1
    low = -most if bounds.low is None else _ceiling(bounds.low, strict=bounds.above)
    high = most if bounds.high is None else _floor(bounds.high, strict=bounds.below)
    if low > high:
        return None
    found = []
    if low < 0:
        found.append('"-" ' + _group(_naturals(max(1, -high), -low)))
    if high >= 0:
        found.append(_group(_naturals(max(0, low), high)))
    return " | ".join(found)


def decimals(bounds: Bounds) -> str | None:
    """GBNF of the decimals within, without exponents; None when there are none."""
    top = Decimal(10**_DIGITS - 1)
    low = -top if bounds.low is None else bounds.low
    high = top if bounds.high is None else bounds.high
    if low > high or (low == high and (bounds.above or bounds.below)):
        return None
    found: list[str] = []
    if low < 0:
        nearest = max(Decimal(0), -high)
        strict = bounds.below if high <= 0 else False
        found += [f'"-" {part}' for part in _magnitudes(nearest, strict, -low, bounds.above)]
    if high >= 0:
        nearest = max(Decimal(0), low)
        strict = bounds.above if low >= 0 else False
        found += _magnitudes(nearest, strict, high, bounds.below)
    return " | ".join(found) or None


def _magnitudes(low: Decimal, above: bool, high: Decimal, below: bool) -> list[str]:
    """Alternatives for low … high, both at least 0."""
    if low > high or (low == high and (above or below)):
        return []
    whole_low, part_low = _split(low)
    whole_high, part_high = _split(high)
    if whole_low == whole_high:
        part = _between(part_low, above, part_high, below)
        return [f'"{whole_low}" {part}'] if part is not None else []
    found = [f'"{whole_low}" {_at_least(part_low, above)}']
    if whole_high - whole_low > 1:
        found.append(_group(_naturals(whole_low + 1, whole_high - 1)) + " " + _ANY_FRACTION)
    part = _at_most(part_high, below)
    if part is not None:
        found.append(f'"{whole_high}" {part}')
    return found


def _split(value: Decimal) -> tuple[int, str]:
    whole = int(value)
    digits = format(value - whole, "f").partition(".")[2].rstrip("0")
    return whole, digits


def _at_least(digits: str, strict: bool) -> str:
    if not digits:
        return _SOME_FRACTION if strict else _ANY_FRACTION
    return '"." ' + _group(_digits_from(digits, strict))


def _at_most(digits: str, strict: bool) -> str | None:
    if not digits:
        return None if strict else '("." "0")?'
    return '("." ' + _group(_digits_to(digits, strict)) + ")?"


def _between(low: str, above: bool, high: str, below: bool) -> str | None:
    """Fractions from low to high, low <= high, of the same whole number."""
    n = max(len(low), len(high))
    a, b = low.ljust(n, "0"), high.ljust(n, "0")
    if a == b:
        return f'"." "{a}"' if a else '("." "0")?'
    same = 0
    while a[same] == b[same]:
        same += 1
    head, x, y = a[:same], int(a[same]), int(b[same])
    rest_low, rest_high = a[same + 1 :].rstrip("0"), b[same + 1 :].rstrip("0")
    parts = [f'"{x}" ' + _rest_from(rest_low, above)]
    if y - x > 1:
        parts.append(f"[{x + 1}-{y - 1}] [0-9]{{0,15}}")
    rest = _rest_to(rest_high, below)
    if rest is not None:
        parts.append(f'"{y}" {rest}')
    found = '"." ' + (f'"{head}" ' if head else "") + _group(" | ".join(parts))
    return f"({found})?" if not low and not above else found


def _digits_from(digits: str, strict: bool) -> str:
    """Digits behind the point that make at least 0.digits; digits is not empty."""
    first = int(digits[0])
    parts = [f'"{first}" ' + _rest_from(digits[1:], strict)]
    if first < 9:
        parts.append(f"[{first + 1}-9] [0-9]{{0,15}}")
    return " | ".join(parts)


def _rest_from(digits: str, strict: bool) -> str:
    if not digits:
        return "[0-9]{0,14} [1-9]" if strict else "[0-9]{0,15}"
    return _group(_digits_from(digits, strict))


def _digits_to(digits: str, strict: bool) -> str:
    """Digits behind the point that make at most 0.digits; digits is not empty."""
    first = int(digits[0])
    parts = []
    rest = _rest_to(digits[1:], strict)
    if rest is not None:
        parts.append(f'"{first}" {rest}')
    if first > 0:
        parts.append(f"[0-{first - 1}] [0-9]{{0,15}}")
    return " | ".join(parts)


def _rest_to(digits: str, strict: bool) -> str | None:
    if not digits:
        return None if strict else '"0"?'
    return _group(_digits_to(digits, strict)) + "?"


def _naturals(low: int, high: int) -> str:
    """Alternatives for the whole numbers low … high, 0 <= low <= high."""
    parts = []
    for n in range(len(str(low)), len(str(high)) + 1):
        a = max(low, 10 ** (n - 1) if n > 1 else 0)
        b = min(high, 10**n - 1)
        if a <= b:
            parts.append(_same_length(str(a), str(b)))
    return " | ".join(parts)


def _same_length(a: str, b: str) -> str:
    if a == b:
        return f'"{a}"' if a else ""
    n = len(a)
    if a[0] == b[0]:
        return f'"{a[0]}" {_same_length(a[1:], b[1:])}' if n > 1 else f'"{a[0]}"'
    if n == 1:
        return f"[{a}-{b}]"
    low, high = int(a[0]), int(b[0])
    parts = []
    if a[1:].strip("0"):
        parts.append(f'"{low}" ' + _group(_same_length(a[1:], "9" * (n - 1))))
        low += 1
    last = None
    if b[1:].strip("9"):
        last = f'"{high}" ' + _group(_same_length("0" * (n - 1), b[1:]))
        high -= 1
    if low <= high:
        parts.append(f"[{low}-{high}] [0-9]{{{n - 1}}}")
    if last:
        parts.append(last)
    return _group(" | ".join(parts))


def _group(text: str) -> str:
    return f"({text})"


def _ceiling(value: Decimal, *, strict: bool) -> int:
    whole = int(value)
    if whole < value:
        return whole + 1
    return whole + 1 if strict and whole == value else whole


def _floor(value: Decimal, *, strict: bool) -> int:
    whole = int(value)
    if whole > value:
        return whole - 1
    return whole - 1 if strict and whole == value else whole
