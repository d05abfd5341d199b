"""Colours: four themes, and how each kind of token looks. Styles never rely on colour alone."""

from __future__ import annotations

from textual.content import Content
from textual.theme import Theme

from localspec.visible import visible

__all__ = ["CONTRAST", "MARKS", "TEXTUAL_NAMES", "VERDICT_SIGNS", "legend", "shown_token"]

CONTRAST = Theme(
    name="localspec-contrast",
    primary="#ffff00",
    secondary="#00ffff",
    accent="#00ffff",
    success="#00ff00",
    warning="#ffff00",
    error="#ff6060",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#202020",
    dark=True,
)

TEXTUAL_NAMES = {
    "dark": "textual-dark",
    "light": "textual-light",
    "contrast": CONTRAST.name,
    "ansi": "ansi-dark",
}

MARKS = {
    "model": "$text-success underline",
    "ngram": "$text-accent italic underline",
    "target": "",
    "rejected": "$text-error strike",
    "discarded": "dim",
}

_UNCOLOURED = {
    "model": "$text underline",
    "ngram": "$text italic underline",
    "rejected": "$text strike",
}

VERDICT_SIGNS = {
    "accepted": "✓",
    "rejected": "✗",
    "discarded": "·",
    "bonus": "+",
    "correction": "→",
}


_LEGEND = (
    ("accepted", "model"),
    ("copied", "ngram"),
    ("target's own", "target"),
    ("rejected", "rejected"),
)


def legend(width: int, *, plain: bool = False) -> Content:
    """What the styles of the marked text mean, in those styles; as much as fits the width.

    plain: without colours, and with the brackets that then stand around rejected tokens.
    """
    styles = MARKS | _UNCOLOURED if plain else MARKS
    shown = Content("")
    for word, kind in sorted(_LEGEND, key=lambda entry: entry[1] not in ("model", "rejected")):
        if plain and kind == "rejected":
            word = f"[-{word}-]"
        longer = shown.append(
            Content.assemble("  " if shown else "", (word, styles[kind] or "$text"))
        )
        if longer.cell_length > width:
            break
        shown = longer
    return shown


def shown_token(text: str) -> str:
    """A token on one line, its blanks visible."""
    shown = text.replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍")
    if shown.startswith(" "):
        shown = "·" + shown[1:]
    if shown.endswith(" "):
        shown = shown[:-1] + "·"
    return visible(shown) or "∅"
