"""`localspec replay`: one recorded answer, drafted in every other way."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["replay"]

FIXED = (1, 2, 3, 4, 6, 8, 12, 16)


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
def replay(trace: Path) -> None:
    """Expected tokens per second of other drafts for TRACE, made by `run --trace`."""
    from localspec.bench.replay import Recording, table
    from localspec.bench.trace import read_trace

    found = read_trace(trace)
    recording = Recording(found)
    header = found.header
    click.echo(
        f"{header.get('target')} + {header.get('draft') or 'no draft model'}, "
        f"{header.get('device')}, {header.get('n_threads')} threads, "
        f"{len(recording.tokens)} tokens after a prompt of {len(recording.prompt_ids)}"
    )
    if recording.is_greedy:
        click.echo("greedy: fixed lengths and the oracle are exact for these costs")
    else:
        click.echo("sampled: estimates; draft tokens are accepted with the recorded Σ min(p, q)")
    rows = table(recording, FIXED)
    width = max(len(name) for name, _ in rows)
    plain = rows[0][1].tokens_per_s
    click.echo(f"{'':<{width}} {'tokens/s':>9} {'x plain':>8} {'tokens/pass':>12} {'drafted':>8}")
    for name, outcome in rows:
        click.echo(
            f"{name:<{width}} {outcome.tokens_per_s:>9.2f} {outcome.tokens_per_s / plain:>8.2f} "
            f"{outcome.n_tokens / outcome.n_passes:>12.2f} {outcome.n_drafted:>8}"
        )
