"""`localspec audit`: plain and speculative greedy text, compared token by token."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from localspec.visible import visible

if TYPE_CHECKING:
    from localspec.bench.audit import Audit
    from localspec.session.session import Session

__all__ = ["audit"]

DEFAULT_PROMPT = "Write a Python function that merges two sorted lists, then explain it."


@click.command()
@click.argument("prompt", required=False)
@click.option("--target", "-m", default="default", show_default=True)
@click.option("--draft", "-md", default="auto", show_default=True)
@click.option("--drafter", type=click.Choice(["auto", "model", "ngram", "splice"]))
@click.option("--n-draft", "-K", type=int, help="Tokens drafted each round, exactly.")
@click.option("--max-tokens", "-n", type=int, default=256, show_default=True)
@click.option("--n-ctx", "--ctx-size", "-c", type=int, help="Context, in tokens.")
@click.option("--n-threads", "--threads", "-t", type=int)
@click.option("--n-gpu-layers", "-ngl", type=int)
@click.option("--n-gpu-layers-draft", "-ngld", type=int)
@click.option("--exact", is_flag=True, default=None, help="Audit exact mode.")
@click.option("--raw", is_flag=True, help="Continue the text; no chat template.")
def audit(prompt: str | None, **given: Any) -> None:
    """Decode PROMPT greedily twice, plain and speculative, and compare.

    Exit code 0 when the text is identical or first differs at a near tie, 1 when a near tie does
    not explain the difference. Logits differ a little between batch sizes; `--exact` uses only
    sizes where they do not.
    """
    from localspec.bench.audit import audit as compare
    from localspec.cli.loading import load_with_progress, prepare
    from localspec.session.options import LoadOptions, Options, parse

    text = prompt or DEFAULT_PROMPT
    chosen = {name: value for name, value in given.items() if value is not None}
    answer: dict[str, Any] = {
        n: chosen[n] for n in ("drafter", "n_draft", "max_tokens") if n in chosen
    }
    names = ("n_ctx", "n_threads", "n_gpu_layers", "n_gpu_layers_draft", "exact")
    loading = {name: chosen[name] for name in names if name in chosen}
    parse(Options, answer)
    parse(LoadOptions, loading)
    draft = None if given["draft"] == "none" or answer.get("drafter") == "ngram" else given["draft"]
    question: Any = text if given["raw"] else [{"role": "user", "content": text}]
    with load_with_progress(given["target"], draft, loading) as session:
        prepare(session, drafting="n_draft" not in chosen)
        found = compare(session, question, **answer)
        for line in report(session, found):
            click.echo(visible(line))
    if found.verdict == "bug":
        sys.exit(1)


def report(session: Session, found: Audit) -> list[str]:
    """What was found, in words."""
    if found.position is None:
        same = f"identical: {found.n_same} tokens, plain and speculative, are the same"
        if found.n_drafted:
            return [f"{same}; {found.n_drafted} draft tokens were checked on the way"]
        notes = [f"note: {note}" for note in found.notes]
        return [
            f"{same}, but nothing was drafted, so this shows little: --n-draft 4 always drafts",
            *notes,
        ]
    lines = [
        f"{found.verdict}: the first {found.n_same} tokens are the same; then plain says "
        f"{_name(session, found.plain_token)}, speculative {_name(session, found.our_token)}"
    ]
    if found.plain is None or found.batched is None:
        return [*lines, "one of the texts ends there, which a near tie does not explain"]
    for label, gap in (
        ("alone", found.plain),
        (f"in a batch of {found.batch_size}", found.batched),
    ):
        lines.append(
            f"  decoded {label}: best {_name(session, gap.best)}, then "
            f"{_name(session, gap.second)}, {gap.gap:.4f} logits apart"
        )
    if found.verdict == "near tie":
        lines.append(
            "  rounding in the batch decided between two tokens that are almost equally likely; "
            "`--exact` avoids this"
        )
    return lines


def _name(session: Session, token: int | None) -> str:
    if token is None:
        return "nothing"
    return f"{session.piece(token)!r} ({token})"
