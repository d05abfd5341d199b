"""Regular expressions of JSON schemas as GBNF, spelled as the inside of a JSON string.

Taken: literals, classes, `.`, \\d \\w \\s and their negations, groups, alternatives, repetitions,
and ^ and $ at the ends of the whole pattern or of an alternative of it. Everything else is refused.
"""

from __future__ import annotations

from localspec.errors import InvalidOptionError
from localspec.grammar.gbnf import literal

__all__ = ["ANY_CHARS", "HEX4", "SHORT_ESCAPES", "pattern_rule"]

Ranges = list[tuple[int, int]]

SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b"}
_WHOLE: Ranges = [(0x20, 0x7E), (0x80, 0xD7FF), (0xE000, 0x10FFFF)]
ANY_CHARS = "[ !#-\\[\\]-~\\x80-\\uD7FF\\uE000-\\U0010FFFF]"  # needs no escape in a JSON string
HEX4 = (
    '"u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} | '
    '[dD] [89abAB] [0-9a-fA-F]{2} "\\\\u" [dD] [c-fC-F] [0-9a-fA-F]{2})'
)
_SETS: dict[str, Ranges] = {
    "d": [(0x30, 0x39)],
    "w": [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
    "s": [(0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20)],
}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_LINE_ENDS: Ranges = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
_MAX_DEPTH = 50


def pattern_rule(pattern: str, any_char: str) -> str:
    """The characters between the quotes of a JSON string that holds a match of `pattern`.

    any_char: the rule for any one character, used where the pattern is not anchored. Raises
    InvalidOptionError for what cannot be said in GBNF.
    """
    reader = _Pattern(pattern, any_char)
    return reader.read()


class _Pattern:
    def __init__(self, text: str, any_char: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._any_char = any_char

    def read(self) -> str:
        """Top-level alternatives, each open where it is not anchored."""
        found = []
        while True:
            anchored = self._take("^")
            body = self._sequence()
            closed = self._take("$")
            head = "" if anchored else f"{self._any_char}* "
            tail = "" if closed else f" {self._any_char}*"
            found.append(head + (body or '""') + tail)
            if not self._take("|"):
                break
        if self._at < len(self._text):
            self._fail(f"{self._text[self._at]!r} is not understood here")
        return "(" + " | ".join(found) + ")"

    def _fail(self, what: str) -> None:
        raise InvalidOptionError(
            f"json_schema: pattern {self._text!r}, character {self._at + 1}: {what}"
        )

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self, char: str) -> bool:
        if self._peek() != char:
            return False
        self._at += 1
        return True

    def _sequence(self) -> str:
        parts: list[str] = []
        while self._peek() and self._peek() not in "|)$":
            parts.append(self._atom() + self._quantifier())
        return " ".join(parts)

    def _atom(self) -> str:
        char = self._peek()
        self._at += 1
        if char == "(":
            return self._group()
        if char == "[":
            return _spelled(self._class())
        if char == ".":
            return _spelled(_without(_WHOLE, _LINE_ENDS))
        if char == "\\":
            return _spelled(self._escape())
        if char in "*+?{^":
            self._at -= 1
            self._fail(f"{char!r} is not understood here")
        return _spelled([(ord(char), ord(char))])

    def _group(self) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(f"groups are nested more than {_MAX_DEPTH} deep")
        if self._take("?") and not self._take(":"):
            self._fail("of the groups that begin with (? only (?: is taken")
        found = [self._sequence() or '""']
        while self._take("|"):
            found.append(self._sequence() or '""')
        if not self._take(")"):
            self._fail("a group has no closing ), or holds an anchor")
        self._depth -= 1
        return "(" + " | ".join(found) + ")"

    def _quantifier(self) -> str:
        char = self._peek()
        if not char or char not in "*+?{":
            return ""
        start = self._at
        self._at += 1
        if char == "{":
            end = self._text.find("}", self._at)
            low, _comma, high = self._text[self._at : max(end, self._at)].partition(",")
            if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
                self._fail("a repetition is written {3}, {3,} or {3,5}")
            self._at = end + 1
        if self._peek() and self._peek() in "?+*":
            self._fail("lazy and possessive repetitions are not taken")
        return self._text[start : self._at]

    def _escape(self) -> Ranges:
        char = self._peek()
        self._at += 1
        if char and char in "dws":
            return _SETS[char]
        if char and char in "DWS":
            return _without(_WHOLE, _SETS[char.lower()])
        if char in _CONTROLS:
            code = ord(_CONTROLS[char])
            return [(code, code)]
        n = {"x": 2, "u": 4}.get(char, 0)
        if n:
            digits = self._text[self._at : self._at + n]
            try:
                code = int(digits, 16)
            except ValueError:
                self._fail(f"\\{char} needs {n} hexadecimal digits")
            self._at += n
            return [(code, code)]
        if not char or char.isalnum():
            self._at -= 1
            self._fail(f"the escape \\{char} is not taken")
        return [(ord(char), ord(char))]

    def _class(self) -> Ranges:
        negated = self._take("^")
        found: Ranges = []
        while not self._take("]"):
            if not self._peek():
                self._fail("a character class has no closing ]")
            first = self._member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._member()
                if len(first) != 1 or len(last) != 1 or first[0][0] > last[0][1]:
                    self._fail("a range in a character class runs backwards")
                found.append((first[0][0], last[0][1]))
            else:
                found += first
        if not found:
            self._fail("a character class is empty")
        return _without(_WHOLE, found) if negated else found

    def _member(self) -> Ranges:
        char = self._peek()
        self._at += 1
        if char == "\\":
            if self._peek() == "b":
                self._fail("the escape \\b is not taken")
            return self._escape()
        return [(ord(char), ord(char))]


def _without(ranges: Ranges, removed: Ranges) -> Ranges:
    """The parts of `ranges` outside of `removed`."""
    left = list(ranges)
    for low, high in removed:
        rest: Ranges = []
        for a, b in left:
            if high < a or b < low:
                rest.append((a, b))
                continue
            if a < low:
                rest.append((a, low - 1))
            if high < b:
                rest.append((high + 1, b))
        left = rest
    return left


def _spelled(ranges: Ranges) -> str:
    """GBNF for one character of these, escaped as JSON wants it."""
    plain: list[str] = []
    escaped: list[str] = []
    for char, short in SHORT_ESCAPES.items():
        if any(low <= ord(char) <= high for low, high in ranges):
            escaped.append(literal(short))
    for low, high in _without(ranges, [(ord(c), ord(c)) for c in SHORT_ESCAPES]):
        for code in range(low, min(high, 0x1F) + 1):
            escaped.append(literal(f"\\u{code:04x}"))
        low = max(low, 0x20)
        for a, b in _without([(low, high)], [(0xD800, 0xDFFF)]) if low <= high else []:
            plain.append(_code(a) if a == b else f"{_code(a)}-{_code(b)}")
    parts = [f"[{''.join(plain)}]"] if plain else []
    parts += escaped
    if not parts:
        raise InvalidOptionError("json_schema: a pattern asks for a lone surrogate")
    return parts[0] if len(parts) == 1 else "(" + " | ".join(parts) + ")"


def _code(code: int) -> str:
    return f"\\x{code:02X}" if code < 0x100 else f"\\U{code:08X}"
