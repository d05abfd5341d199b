"""`localspec calibrate`: what decoding costs on this machine, and what that means."""

from __future__ import annotations

from typing import Any

import click

from localspec.visible import visible

__all__ = ["calibrate"]


@click.command()
@click.option("--target", "-m", default="default", show_default=True)
@click.option("--draft", "-md", default="auto", show_default=True)
@click.option("--depth", "depths", type=click.IntRange(0), multiple=True, default=(0,),
              show_default=True, help="Cached tokens at which to measure; repeatable.")  # fmt: skip
@click.option("--n-ctx", "--ctx-size", "-c", type=int, help="Context, in tokens.")
@click.option("--n-threads", "--threads", "-t", type=int)
@click.option("--n-gpu-layers", "-ngl", type=int)
@click.option("--n-gpu-layers-draft", "-ngld", type=int)
def calibrate(target: str, draft: str, depths: tuple[int, ...], **given: Any) -> None:
    """Measure T(n) and D(n), keep them for later loads, and say whether drafting can pay.

    T(n): the target decodes n tokens with all rows. D(n): the draft model decodes n tokens.
    """
    from localspec.cli.loading import load_with_progress
    from localspec.errors import InvalidOptionError
    from localspec.session.options import LoadOptions, parse

    loading = {name: value for name, value in given.items() if value is not None}
    parse(LoadOptions, loading)
    wanted = None if draft == "none" else draft
    with load_with_progress(target, wanted, loading) as session:
        room = session.n_ctx - 128
        for depth in depths:
            if depth > room:
                raise InvalidOptionError(
                    f"depth {depth:,} leaves no room in a context of {session.n_ctx:,} tokens; "
                    f"at most {room:,} here, or raise --ctx-size"
                )
        click.echo(
            f"{session.target_path.name}, {session.device}, {session.n_threads} threads", err=True
        )
        for depth in sorted(set(depths)):
            click.echo(f"measuring at depth {depth:,} …", err=True)
            session.calibrate(depth)
            click.echo(f"depth {depth:,}, milliseconds (~ is interpolated):")
            for line in _table(session.costs, depth):
                click.echo(f"  {line}")
        outlook = session.outlook()
        if outlook is not None:
            click.echo(visible(outlook.details))


def _table(costs: Any, depth: int) -> list[str]:
    sizes = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
    rows = [("n", [str(n) for n in sizes])]
    for name, table in (("T(n)", costs.target), ("D(n)", costs.draft)):
        if not table.is_empty:
            rows.append((name, [_cell(table, n, depth) for n in sizes]))
    return [f"{name:<5}" + "".join(f"{cell:>7}" for cell in cells) for name, cells in rows]


def _cell(table: Any, n: int, depth: int) -> str:
    mark = "" if table.is_measured(n, depth) else "~"
    return f"{mark}{table.seconds(n, depth) * 1e3:.1f}"
