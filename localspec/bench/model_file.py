"""One model file of a sweep, as the rows and the report call it.

Reads headers, never weights. A file that cannot be read is a contender too: its rows say why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.gguf.header import read_header
from localspec.gguf.parts import part_paths
from localspec.gguf.types import UNQUANTISED
from localspec.visible import visible

__all__ = ["Contender", "contender", "level_label", "unique_labels"]


@dataclass(frozen=True, slots=True)
class Contender:
    """label: short, unique in its role. reference: what a person types to get the file.

    from_lossy: a level that was made here from a source quantised already, so that it can be no
    better than `source`, whatever its own precision. error: why the header could not be read.
    """

    label: str
    path: Path
    reference: str
    quant: str = "?"
    size_bytes: int = 0
    n_params: int = 0
    from_lossy: bool = False
    source: Path | None = None
    error: str | None = None

    @property
    def is_unquantised(self) -> bool:
        """True for F32, F16 and BF16."""
        return self.quant in UNQUANTISED


def contender(path: Path, reference: str, *, source: Path | None = None) -> Contender:
    """What the header says. source: the file that this level was made from, None for others."""
    label = _shown(path.stem)
    try:
        header = read_header(path)
        lossy_source = source is not None and read_header(source).quant not in UNQUANTISED
    except LocalspecError as error:
        size = sum(part.stat().st_size for part in part_paths(path) if part.is_file())
        return Contender(label, path, reference, size_bytes=size, error=str(error))
    if source is not None:
        label = level_label(source, header.quant)
    return Contender(
        label,
        path,
        reference,
        header.quant,
        header.total_size_bytes,
        header.n_params,
        from_lossy=lossy_source,
        source=source,
    )


def level_label(source: Path, quant: str) -> str:
    """The source's name with this quant in place of its own."""
    stem = re.sub(r"(?i)[-._](I?Q\d\w*|TQ\d_\d|MXFP4\w*|B?F16|F32)$", "", source.stem)
    return f"{_shown(stem)} {quant}"


def unique_labels(contenders: Iterable[Contender]) -> tuple[Contender, ...]:
    """Without repeated files; labels that are taken get as many folders of their file, or of the
    source of a level, as tell them apart, and where none do the name of the source.
    """
    kept: dict[Path, Contender] = {}
    for found in contenders:
        kept.setdefault(found.path.resolve(), found)
    groups: dict[str, list[Contender]] = {}
    for found in kept.values():
        groups.setdefault(found.label, []).append(found)
    fresh = {label: iter(_told_apart(label, group)) for label, group in groups.items()}
    return tuple(replace(found, label=next(fresh[found.label])) for found in kept.values())


def _told_apart(label: str, group: Sequence[Contender]) -> list[str]:
    """A label for each of a group that has one label."""
    if len(group) == 1 and label != "none":
        return [label]
    origins = [(found.source or found.path).resolve() for found in group]
    deepest = max(len(origin.parents) for origin in origins)
    for depth in range(1, deepest):
        labels = ["/".join((*o.parent.parts[1:][-depth:], label)) for o in origins]
        if len(set(labels)) == len(group):
            return labels
    labels = [f"{label} from {_shown(origin.name)}" for origin in origins]
    if len(set(labels)) == len(group):
        return labels
    return [f"{label} #{i}" for i in range(1, len(group) + 1)]


def _shown(name: str) -> str:
    """One line that is no markup for a report's code marks, and that every encoding can write."""
    text = visible(name).replace("\n", "\u240a").replace("\t", "\u2409").replace("`", "'")
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
