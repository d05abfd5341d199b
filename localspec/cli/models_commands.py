"""`localspec models …` and `localspec quantize`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localspec.errors import ModelFileError, ModelNotFoundError
from localspec.visible import visible

if TYPE_CHECKING:
    from localspec.gguf.header import GGUFHeader
    from localspec.models.catalog import CatalogFile

__all__ = ["models", "present_files", "quantize"]


@click.group()
def models() -> None:
    """List, fetch and inspect models. `default` names the default pair."""


@models.command("list")
def list_models() -> None:
    """The pairs and files of the catalog, and which are on this machine."""
    from localspec.models.catalog import catalog
    from localspec.models.references import local_path

    found = catalog()
    click.echo("pairs (a name stands for both models):")
    for pair in found.pairs.values():
        here = sum(local_path(file) is not None for file in (pair.target, pair.draft))
        state = ("not here", "one of two here", "here")[here]
        mark = " (default)" if pair.name == found.default else ""
        click.echo(f"  {pair.name + mark:<32} {state:<16} {pair.note}")
    click.echo("files:")
    for file in found.files.values():
        size = f"{file.size_bytes / 1e9:.2f} GB" if file.size_bytes else "size unpinned"
        state = "here" if local_path(file) else "not here"
        click.echo(f"  {file.name:<32} {state:<16} {size:<14} {file.licence}")


@models.command()
@click.argument("reference")
def pull(reference: str) -> None:
    """Fetch a model, or both models of a pair."""
    for path in _fetched(reference):
        click.echo(str(path))


@models.command()
@click.argument("reference")
def path(reference: str) -> None:
    """Print the files that a reference stands for, target first, one a line."""
    for found in present_files(reference):
        click.echo(str(found))


@models.command()
@click.argument("reference")
def show(reference: str) -> None:
    """What a GGUF file says about itself; no weights are loaded."""
    from localspec.gguf.header import read_header

    for number, found in enumerate(present_files(reference)):
        if number:
            click.echo()
        header = read_header(found)
        for name, value in _facts(header):
            click.echo(visible(f"{name + ':':<14} {value}").replace("\n", " "))


@models.command()
@click.argument("reference")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def remove(reference: str, yes: bool) -> None:
    """Delete the files of a catalog model or repository from the caches (never a path)."""
    from localspec.gguf.parts import part_paths
    from localspec.models.references import local_path

    files = _files(reference)
    if any(isinstance(file, Path) for file in files):
        raise ModelNotFoundError(
            f"{reference} is your own file, not one that localspec fetched: delete it yourself"
        )
    here = [found for file in files if not isinstance(file, Path) and (found := local_path(file))]
    if not here:
        raise ModelNotFoundError(f"{reference} is not on this machine: nothing to delete")
    for found in here:
        parts = [part for part in part_paths(found) if part.exists()]
        size = sum(part.stat().st_size for part in parts) / 1e9
        if not yes and not click.confirm(f"delete {found} ({size:.2f} GB)?", err=True):
            continue
        for part in parts:
            blob = part.resolve()
            part.unlink()
            blob.unlink(missing_ok=True)
            click.echo(f"deleted {part}")


@click.command()
@click.argument("source")
@click.argument("destination", type=click.Path(path_type=Path))
@click.option("--type", "type_name", required=True, help="Such as Q4_0, Q8_0, F16.")
@click.option("--overwrite", is_flag=True, help="Replace DESTINATION if it exists.")
@click.option("--imatrix", type=click.Path(path_type=Path), help="A matrix by llama-imatrix.")
@click.option("--output-type", help="Of the output table alone: a small one speeds up a draft.")
@click.option("--embedding-type", help="Of the embedding table alone.")
@click.option("--n-threads", "--threads", "-t", type=click.IntRange(1))
def quantize(
    source: str,
    destination: Path,
    type_name: str,
    overwrite: bool,
    imatrix: Path | None,
    output_type: str | None,
    embedding_type: str | None,
    n_threads: int | None,
) -> None:
    """Write another quant level of SOURCE (a reference) to DESTINATION."""
    from localspec.llama.quantize import is_lossy
    from localspec.llama.quantize import quantize as run

    done = threading.Event()

    def started(header: GGUFHeader, growing: Path) -> None:
        if is_lossy(header):
            click.echo(
                f"localspec: note: {header.path.name} is {header.quant} already, so what that lost "
                "stays lost: use an F16 or BF16 source for quality",
                err=True,
            )
        if sys.stderr.isatty():
            threading.Thread(target=_watch, args=(growing, done), daemon=True).start()

    (found,) = present_files(source)[:1]
    try:
        header = run(
            found, destination, type_name, n_threads=n_threads, overwrite=overwrite,
            importance=imatrix, output_type=output_type, embedding_type=embedding_type,
            on_start=started,
        )  # fmt: skip
    finally:
        done.set()
    click.echo(
        f"localspec: wrote {destination}: {header.quant}, {header.size_bytes / 1e9:.2f} GB",
        err=True,
    )


def _watch(growing: Path, done: threading.Event) -> None:
    while not done.wait(0.2):
        written = growing.stat().st_size / 1e9 if growing.exists() else 0.0
        click.echo(f"\rquantising: {written:.2f} GB written", err=True, nl=False)
    click.echo("\r\x1b[K", err=True, nl=False)


def _files(reference: str) -> list[Path | CatalogFile]:
    from localspec.models.catalog import catalog
    from localspec.models.references import locate

    pair = catalog().pair(reference)
    if pair is not None:
        return [pair.target, pair.draft]
    return [locate(reference)]


def _fetched(reference: str) -> list[Path]:
    from localspec.cli.loading import fetch

    return [
        file if isinstance(file, Path) else fetch(file.name, "target") for file in _files(reference)
    ]


def present_files(reference: str) -> list[Path]:
    """The files on this machine that a reference stands for, a pair's target first.

    Raises ModelNotFoundError, with the command that fetches what is missing.
    """
    from localspec.models.references import local_path

    found = []
    for file in _files(reference):
        here = file if isinstance(file, Path) else local_path(file)
        if here is None:
            raise ModelNotFoundError(
                f"{reference} is not on this machine: fetch it with "
                f"`localspec models pull {reference}`"
            )
        found.append(here)
    return found


def _facts(header: GGUFHeader) -> list[tuple[str, str]]:
    from localspec.gguf.model_kind import kind_of

    context = header.context_length
    return [
        ("file", str(header.path)),
        ("name", header.name),
        ("architecture", header.architecture or "not stated"),
        ("kind", kind_of(header)),
        ("parameters", f"{header.n_params / 1e6:,.1f} million"),
        ("quant", header.quant),
        ("size", f"{header.total_size_bytes / 1e9:.2f} GB"),
        ("context", f"{context:,} tokens" if context else "not stated"),
        ("vocabulary", f"{header.n_vocab:,} tokens ({header.tokenizer_model})"),
        ("chat template", "yes" if header.chat_template else "no (use --raw)"),
        ("licence", header.licence or "not stated in the file"),
        ("parts", str(len(header.parts))),
        ("checks", _verdict(header)),
    ]


def _verdict(header: GGUFHeader) -> str:
    """Whether it could be loaded, as far as the file itself tells."""
    from localspec.gguf.model_checks import check_model
    from localspec.gguf.model_kind import require_language_model

    try:
        require_language_model(header, "target")
        check_model(header)
    except ModelFileError as error:
        return str(error)
    return "passed"
