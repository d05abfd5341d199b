"""Text from models, files and errors, made harmless for a terminal. Knows nothing else."""

from __future__ import annotations

__all__ = ["visible"]


def visible(text: str) -> str:
    """Control and bidirectional-override characters made visible; line ends and tabs stay."""
    return text.translate(_VISIBLE)


_VISIBLE = {
    **{c: chr(0x2400 + c) for c in range(0x20) if chr(c) not in "\n\t"},
    0x7F: "\u2421",
    **{c: f"<U+{c:04X}>" for c in [*range(0x80, 0xA0), *range(0x202A, 0x202F)]},
    **{c: f"<U+{c:04X}>" for c in range(0x2066, 0x206A)},
}
