"""The named models of catalog.toml."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.errors import CatalogError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Catalog", "CatalogFile", "CatalogPair", "catalog", "parse"]

_PLAIN_NAME = re.compile(r"\w[\w.+-]*")  # no folder, no drive, no leading dot


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """One GGUF: a pinned file (file, size_bytes, sha256) or a repository and a quant level.

    packages: requirement strings of the mirror packages, in the order of the bytes.
    """

    name: str
    repo: str
    licence: str
    file: str | None = None
    quant: str | None = None
    revision: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    packages: tuple[str, ...] = ()
    member: str | None = None


@dataclass(frozen=True, slots=True)
class CatalogPair:
    """A target and the draft that goes with it."""

    name: str
    target: CatalogFile
    draft: CatalogFile
    note: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Files and pairs by name; `default` is the name of the default pair."""

    default: str
    files: dict[str, CatalogFile]
    pairs: dict[str, CatalogPair]

    def pair(self, name: str) -> CatalogPair | None:
        """The pair of that name; `default` names the default pair."""
        return self.pairs.get(self.default if name == "default" else name)


@functools.cache
def catalog() -> Catalog:
    """The catalog that ships with the package. Raises CatalogError when it is damaged."""
    path = _path()
    try:
        return parse(tomllib.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:  # ValueError: bad TOML, bad UTF-8
        raise CatalogError(
            f"the model catalog {path} is damaged ({error}): install localspec again"
        ) from None


def parse(document: dict[str, Any]) -> Catalog:
    """Build a catalog from its TOML document. Raises CatalogError for whatever is wrong in it."""
    try:
        return _build(document)
    except KeyError as error:
        raise CatalogError(f"the model catalog lacks the entry {error}") from None
    except (AttributeError, TypeError, re.error) as error:
        raise CatalogError(f"the model catalog has a wrong entry: {error}") from None


def _build(document: dict[str, Any]) -> Catalog:
    files = {name: _file(name, entry) for name, entry in document["files"].items()}
    pairs = {}
    for name, entry in document["pairs"].items():
        for role in ("target", "draft"):
            if entry[role] not in files:
                raise CatalogError(f"pair {name!r} names an unknown file {entry[role]!r}")
        pairs[name] = CatalogPair(
            name, files[entry["target"]], files[entry["draft"]], entry.get("note", "")
        )
    if document["default"] not in pairs:
        raise CatalogError(f"the default pair {document['default']!r} is not in the catalog")
    return Catalog(document["default"], files, pairs)


def _file(name: str, entry: dict[str, Any]) -> CatalogFile:
    entry = dict(entry)
    packages = entry.pop("packages", None)
    file = entry.get("file")
    if file is not None and not _PLAIN_NAME.fullmatch(file):
        raise CatalogError(f"file {file!r} of {name!r} is not a plain file name")
    if (file is None) == (entry.get("quant") is None):
        raise CatalogError(f"{name!r} must have either a file or a quant level")
    if packages is not None and not (file and entry.get("sha256") and entry.get("size_bytes")):
        raise CatalogError(f"{name!r} has a mirror, but its file, size and SHA-256 are not pinned")
    re.compile(entry.get("member", ""))
    return CatalogFile(name=name, packages=_requirements(packages), **entry)


def _requirements(packages: dict[str, Any] | None) -> tuple[str, ...]:
    if packages is None:
        return ()
    prefix, count, version = packages["prefix"], packages["count"], packages["version"]
    names = [f"{prefix}{i}" for i in range(1, count + 1)] or [prefix]
    return tuple(f"{name}=={version}" for name in names)


def _path() -> Path:
    here = Path(__file__).parent
    shipped = here / "catalog.toml"
    return shipped if shipped.exists() else here.parent.parent / "models" / "catalog.toml"
