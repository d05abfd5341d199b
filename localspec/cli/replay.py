"""`localspec replay`: one recorded answer, as every other way of drafting would have made it."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["replay"]


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
def replay(trace: Path) -> None:
    """Expected tokens per second of other ways of drafting, for a TRACE made by `run --trace`."""
    from localspec.bench.replay import replay_all
    from localspec.bench.trace import read_trace

    recording = read_trace(trace)
    header = recording.header
    click.echo(
        f"{header.get('target')} + {header.get('draft') or 'no draft model'}, "
        f"{header.get('device')}, {header.get('n_threads')} threads, "
        f"{len(recording.tokens)} tokens after a prompt of {len(recording.prompt_ids)}"
    )
    if recording.is_greedy:
        click.echo("greedy: fixed lengths and the oracle are exact for these costs")
    else:
        click.echo("sampled: estimates; draft tokens are accepted with the recorded Σ min(p, q)")
    outcomes = replay_all(recording)
    width = max(map(len, outcomes))
    plain = outcomes["plain"].tokens_per_s
    click.echo(f"{'':<{width}} {'tokens/s':>9} {'x plain':>8} {'tokens/pass':>12} {'drafted':>8}")
    for name, outcome in outcomes.items():
        click.echo(
            f"{name:<{width}} {outcome.tokens_per_s:>9.2f} {outcome.tokens_per_s / plain:>8.2f} "
            f"{outcome.n_tokens / outcome.n_passes:>12.2f} {outcome.n_drafted:>8}"
        )
