"""Options that several commands share: which models, how they are loaded, how answers are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["ANSWERING", "LOADING", "chosen_options", "shared_options"]

F = TypeVar("F", bound=Callable[..., Any])

LOADING = (
    "n_ctx",
    "n_batch",
    "n_threads",
    "n_gpu_layers",
    "n_gpu_layers_draft",
    "main_gpu",
    "tensor_split",
    "flash_attn",
    "type_k",
    "type_v",
    "exact",
    "ignore_memory",
)
ANSWERING = (
    "max_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "n_draft",
    "n_draft_max",
    "verifier",
    "drafter",
    "controller",
    "logit_bias",
)


def _bias(value: str) -> tuple[int, float]:
    token, _, bias = value.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not ID=BIAS, such as 220=-inf") from None


def _shares(value: str) -> tuple[float, ...]:
    try:
        return tuple(float(share) for share in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 3,1") from None


_OPTIONS: tuple[Callable[[F], F], ...] = (
    click.option(
        "--target",
        "-m",
        default="default",
        show_default=True,
        help="Path, catalog name, or user/repo[:quant].",
    ),
    click.option(
        "--draft",
        "-md",
        default="auto",
        show_default=True,
        help="The same, or `auto` (the pair's own) or `none`.",
    ),
    click.option(
        "--drafter",
        metavar="NAME",
        help="Who guesses: auto, model, ngram, splice, an installed drafter's name, or none "
        "(plain decoding).",
    ),
    click.option("--n-draft", "-K", type=int, help="Tokens drafted each round, exactly."),
    click.option("--n-draft-max", type=int, help="Most tokens of a draft.  [default: 16]"),
    click.option("--controller", metavar="NAME", help="An installed controller of draft lengths."),
    click.option(
        "--exact",
        is_flag=True,
        default=None,
        help="Byte for byte the plain text, by bit-identical batches.",
    ),
    click.option("--verifier", type=click.Choice(["auto", "match", "rejection", "block"])),
    click.option("--max-tokens", "-n", type=int, help="Length limit of the answer."),
    click.option("--temperature", "--temp", type=float, help="0 is greedy.  [default: 0.8]"),
    click.option("--top-k", type=int, help="0 is off.  [default: 40]"),
    click.option("--top-p", type=float, help="1 is off.  [default: 0.95]"),
    click.option("--min-p", type=float, help="0 is off.  [default: 0.05]"),
    click.option("--repeat-penalty", type=float, help="1 is off.  [default: 1]"),
    click.option("--presence-penalty", type=float, help="0 is off.  [default: 0]"),
    click.option("--frequency-penalty", type=float, help="0 is off.  [default: 0]"),
    click.option("--logit-bias", type=_bias, metavar="ID=BIAS", multiple=True, help="Repeatable."),
    click.option("--seed", "-s", type=int, help="The same text again, with verifier match."),
    click.option("--stop", multiple=True, help="Ends the answer; repeatable."),
    click.option("--n-ctx", "--ctx-size", "-c", type=int, help="Context, in tokens."),
    click.option("--n-batch", "--batch-size", "-b", type=int, help="Prefill piece, in tokens."),
    click.option("--n-threads", "--threads", "-t", type=int),
    click.option("--n-gpu-layers", "-ngl", type=int, help="Target's layers on the GPU; -1 is all."),
    click.option("--n-gpu-layers-draft", "-ngld", type=int, help="The same for the draft."),
    click.option("--main-gpu", "-mg", type=int),
    click.option("--tensor-split", "-ts", type=_shares, metavar="N,N", help="Shares of the GPUs."),
    click.option("--flash-attn", "-fa", type=click.Choice(["auto", "on", "off"])),
    click.option("--type-k", "--cache-type-k", "-ctk", help="K cache type.  [default: f16]"),
    click.option("--type-v", "--cache-type-v", "-ctv", help="V cache type.  [default: f16]"),
    click.option(
        "--ignore-memory", is_flag=True, default=None, help="Load even what seems too large."
    ),
)


def shared_options(command: F) -> F:
    """Add them to a command; chosen_options() reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen_options(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was given of LoadOptions and of Options. Raises InvalidOptionError, before any load."""
    from localspec.options import LoadOptions, Options, parse

    given["logit_bias"] = dict(given["logit_bias"]) or None
    given["stop"] = tuple(given["stop"]) or None
    loading = {name: given[name] for name in LOADING if given[name] is not None}
    answering = {name: given[name] for name in ANSWERING if given[name] is not None}
    parse(Options, answering)
    parse(LoadOptions, loading)
    return loading, answering
