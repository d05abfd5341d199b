"""`localspec bench` measures which quants to run; `report` and `compare` read what it wrote."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.visible import visible

if TYPE_CHECKING:
    from localspec.bench.sweep_results import SweepResults

__all__ = ["bench"]

DEFAULT_OUT = "localspec-bench"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
          "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}  # fmt: skip


def _size(value: str) -> int:
    """Bytes."""
    found = re.fullmatch(r"([\d.]+)\s*([KMGT]?I?)B?", value.strip().upper())
    try:
        assert found is not None
        return int(float(found[1]) * _UNITS[found[2]])
    except (AssertionError, KeyError, ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is not a size such as 8G, 7.5GB or 8GiB") from None


class _FromZero(click.FloatRange):
    """A finite number of 0 or more: `nan` passes any comparison, and JSON holds neither."""

    def __init__(self) -> None:
        super().__init__(0)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number", param, ctx)
        return found


class _BenchGroup(click.Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            raise click.UsageError(
                f"unexpected argument {args[0]!r}: separate several files with commas "
                "(--targets a.gguf,b.gguf) or repeat the option",
                ctx,
            ) from None


def _numbers(_ctx: Any, _param: Any, value: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(n) for n in value.split(",") if n.strip()))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers such as 2,4") from None
    if any(not 1 <= n <= 32 for n in found):
        raise click.BadParameter("draft lengths are from 1 to 32")
    return found


def _limits(command: Any) -> Any:
    for option in (
        click.option("--max-kl", type=_FromZero(), help="Largest KL from the best target."),
        click.option("--max-memory", type=_size, metavar="SIZE", help="Such as 8G."),
    ):
        command = option(command)
    return command


@click.group(cls=_BenchGroup, invoke_without_command=True)
@click.option("--targets", multiple=True, metavar="A,B,…", help="Files, catalog names, "
              "user/repo:quant.  [default: the default pair]")  # fmt: skip
@click.option("--drafts", multiple=True, metavar="A,B,…", help="The same; `none` alone for no "
              "draft model.  [default: the targets' own]")  # fmt: skip
@click.option("--quants", metavar="Q8_0,Q4_K_M,…", help="Make these levels of the targets, and of "
              "the drafts unless --drafts is given.")  # fmt: skip
@click.option(
    "--imatrix",
    type=click.Path(path_type=Path, exists=True),
    help="For making the targets' levels.",
)
@click.option("--prompts", default="quick", show_default=True, metavar="FILE|SUITE",
              help="Suites: quick, all, or a category; files: Spec-Bench, MT-bench, HumanEval, "
              "ShareGPT, plain lines.")  # fmt: skip
@click.option("--raw", is_flag=True, help="Continue the prompts as text, for base models.")
@click.option("--n-prompts", type=click.IntRange(1), help="At most this many, from all categories.")
@click.option("--n-gen", type=click.IntRange(1), default=128, show_default=True,
              help="Tokens of an answer.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True)
@click.option("--n-draft", "n_drafts", callback=_numbers, default="3", show_default=True,
              metavar="K,K,…", help="Fixed lengths to run live; others are predicted.")  # fmt: skip
@click.option("--temperature", "--temp", type=_FromZero(), default=0.0, show_default=True)
@click.option("--delay", type=_FromZero(), default=0.0, metavar="SECONDS",
              help="Pause before each answer, for machines that get hot.")  # fmt: skip
@click.option("--text", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="For perplexity and KL.  [default: a built-in text]")  # fmt: skip
@click.option("--n-chunks", type=click.IntRange(1), help="At most this many chunks of 512 tokens.")
@click.option("--no-quality", is_flag=True, help="Measure only speed and memory.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_OUT,
              show_default=True, help="A sweep that ended early continues here.")  # fmt: skip
@click.option("--n-ctx", "--ctx-size", "-c", type=int)
@click.option("--n-batch", "--batch-size", "-b", type=int)
@click.option("--n-threads", "--threads", "-t", type=int)
@click.option("--n-gpu-layers", "-ngl", type=int)
@click.option("--n-gpu-layers-draft", "-ngld", type=int)
@click.option("--flash-attn", "-fa", type=click.Choice(["auto", "on", "off"]))
@click.option("--type-k", "-ctk")
@click.option("--type-v", "-ctv")
@_limits
@click.pass_context
def bench(ctx: click.Context, /, **given: Any) -> None:
    """Measure which target and draft quants are fastest here, and what they cost.

    Every target runs plain and with every draft, on the same prompts, in turn. Results are written
    to --out as they are measured; the same command continues a sweep that was interrupted.
    """
    if ctx.invoked_subcommand is not None:
        return
    from localspec.cli.bench_run import run_sweep

    _report(run_sweep(given), given["out"], given["max_memory"], given["max_kl"])


@bench.command()
@click.argument("folder", type=click.Path(path_type=Path))
@_limits
def report(folder: Path, max_memory: int | None, max_kl: float | None) -> None:
    """Write the report, CSV and plots of FOLDER again; no model is loaded."""
    from localspec.bench.results_file import read_rows
    from localspec.bench.sweep_results import read_sweep

    _report(read_sweep(read_rows(folder)), folder, max_memory, max_kl)


@bench.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--across", is_flag=True, help="Compare different machines or settings.")
def compare(a: Path, b: Path, across: bool) -> None:
    """Show the configurations that sweeps A and B share, side by side."""
    from localspec.bench.compare import compare as compared
    from localspec.bench.results_file import read_rows
    from localspec.bench.sweep_results import read_sweep
    from localspec.bench.tables import table_lines

    found = compared(read_sweep(read_rows(a)), read_sweep(read_rows(b)), across=across)
    for words in found.differences:
        click.echo(visible(f"differs: {words}"))
    _lines(table_lines(found.table, _width()))
    if found.n_only_one:
        click.echo(f"{found.n_only_one} configurations are in only one of the two")


def _report(
    sweep: SweepResults, folder: Path, max_memory: int | None, max_kl: float | None
) -> None:
    """Write the files; table, chart and recommendation to stdout."""
    from localspec.bench.recommend import Limits, recommend
    from localspec.bench.report import write_report
    from localspec.bench.report_sections import speed_table
    from localspec.bench.tables import chart_lines, table_lines
    from localspec.errors import EngineError

    limits = Limits(max_memory_bytes=max_memory, max_kl=max_kl)
    for note in write_report(sweep, folder, limits):
        click.echo(f"localspec: note: {visible(note)}", err=True)
    _lines([*table_lines(speed_table(sweep), _width()), ""])
    _lines([*chart_lines(sweep, _width()), ""])
    _lines([f"- {sentence}" for sentence in recommend(sweep, limits).sentences])
    failed = {(c.target, c.draft): c.error for c in sweep.failed}
    for (target, draft), error in failed.items():
        click.echo(visible(f"localspec: not measured: {target} + {draft}: {error}"), err=True)
    click.echo(
        f"localspec: the whole report is in {folder / 'report.html'} and report.md", err=True
    )
    if not sweep.measured:
        raise EngineError(
            "nothing could be measured: every pair failed, for the reasons above"
            if failed
            else "no pair was measured completely yet: run the command of this sweep again to "
            "continue"
        )


def _lines(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(visible(line))


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
