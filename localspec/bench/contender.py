"""One model file of a sweep, as the rows and the report call it.

Reads headers, never weights. A file that cannot be read is a contender too: its rows say why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.library.gguf_header import read_header
from localspec.library.gguf_parts import part_paths
from localspec.library.gguf_types import UNQUANTISED

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
    label = path.stem
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
    return f"{stem} {quant}"


def unique_labels(contenders: Iterable[Contender]) -> tuple[Contender, ...]:
    """Without repeated files; where a label is taken, the folder is put before it."""
    kept: dict[Path, Contender] = {}
    for found in contenders:
        kept.setdefault(found.path.resolve(), found)
    labels = [found.label for found in kept.values()]
    return tuple(
        replace(found, label=f"{found.path.resolve().parent.name}/{found.label}")
        if labels.count(found.label) > 1 or found.label == "none"
        else found
        for found in kept.values()
    )
