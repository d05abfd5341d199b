"""Markdown as it is drawn."""

from __future__ import annotations

from localspec.tui.markdown_text import rendered


def test_a_poem_keeps_its_lines() -> None:
    drawn = rendered("Nodes in a list,\nlinked by pointers\n\n- one\n  two\n", 60, "dark").plain
    lines = [line.rstrip() for line in drawn.split("\n")]
    assert lines[:2] == ["Nodes in a list,", "linked by pointers"]
    assert [line.strip(" •") for line in lines[3:]] == ["one", "two"]
