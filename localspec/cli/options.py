"""Options that several commands share: which models, how they are loaded, how answers are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from localspec.errors import InvalidOptionError

__all__ = [
    "ANSWERING",
    "LOADING",
    "chosen_options",
    "chosen_shape",
    "shaping_options",
    "shared_options",
]

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
    "min_tokens",
    "ignore_eos",
    "min_p",
    "typical_p",
    "top_n_sigma",
    "dynatemp_range",
    "dynatemp_exponent",
    "xtc_probability",
    "xtc_threshold",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "penalty_last_n",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "seed",
    "stop",
    "stop_ids",
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
        help="Who drafts: auto, model, ngram, splice, an installed drafter's name, or none "
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
    click.option(
        "--verifier",
        type=click.Choice(["auto", "match", "rejection", "block"]),
        help="The rule of verification.  [default: auto]",
    ),
    click.option(
        "--max-tokens",
        "-n",
        type=int,
        help="Length limit of the answer.  [default: the context's end]",
    ),
    click.option("--temperature", "--temp", type=float, help="0 is greedy.  [default: 0.8]"),
    click.option("--top-k", type=int, help="0 is off.  [default: 40]"),
    click.option("--top-p", type=float, help="1 is off.  [default: 0.95]"),
    click.option("--min-p", type=float, help="0 is off.  [default: 0.05]"),
    click.option("--min-tokens", type=int, help="The answer does not end before.  [default: 0]"),
    click.option("--ignore-eos", is_flag=True, default=None, help="The model never ends it."),
    click.option("--typical-p", "--typical", type=float, help="1 is off.  [default: 1]"),
    click.option("--top-n-sigma", "--top-nsigma", type=float, help="-1 is off.  [default: -1]"),
    click.option("--dynatemp-range", type=float, help="0 is off.  [default: 0]"),
    click.option("--dynatemp-exponent", "--dynatemp-exp", type=float, help="[default: 1]"),
    click.option("--xtc-probability", type=float, help="0 is off.  [default: 0]"),
    click.option("--xtc-threshold", type=float, help="[default: 0.1]"),
    click.option("--repeat-penalty", type=float, help="1 is off.  [default: 1]"),
    click.option("--presence-penalty", type=float, help="0 is off.  [default: 0]"),
    click.option("--frequency-penalty", type=float, help="0 is off.  [default: 0]"),
    click.option("--penalty-last-n", "--repeat-last-n", type=int, help="[default: 64]"),
    click.option("--dry-multiplier", type=float, help="0 is off.  [default: 0]"),
    click.option("--dry-base", type=float, help="[default: 1.75]"),
    click.option("--dry-allowed-length", type=int, help="[default: 2]"),
    click.option("--dry-penalty-last-n", type=int, help="-1 is the whole text.  [default: -1]"),
    click.option(
        "--dry-sequence-breaker",
        "dry_sequence_breakers",
        multiple=True,
        help="Ends what DRY compares; repeatable.",
    ),
    click.option("--mirostat", type=int, help="1 or 2; 0 is off.  [default: 0]"),
    click.option("--mirostat-tau", "--mirostat-ent", type=float, help="[default: 5]"),
    click.option("--mirostat-eta", "--mirostat-lr", type=float, help="[default: 0.1]"),
    click.option("--logit-bias", type=_bias, metavar="ID=BIAS", multiple=True, help="Repeatable."),
    click.option("--seed", "-s", type=int, help="The same text again, with verifier match."),
    click.option("--stop", multiple=True, help="Ends the answer; repeatable."),
    click.option("--stop-id", "stop_ids", type=int, multiple=True, help="The same by token id."),
    click.option(
        "--n-ctx",
        "--ctx-size",
        "-c",
        type=int,
        help="Context, in tokens.  [default: the model's, 8192 at most]",
    ),
    click.option(
        "--n-batch",
        "--batch-size",
        "-b",
        type=int,
        help="Prefill piece, in tokens.  [default: 512]",
    ),
    click.option("--n-threads", "--threads", "-t", type=int, help="[default: the physical cores]"),
    click.option("--n-gpu-layers", "-ngl", type=int, help="Target's layers on the GPU; -1 is all."),
    click.option("--n-gpu-layers-draft", "-ngld", type=int, help="The same for the draft."),
    click.option("--main-gpu", "-mg", type=int, help="GPU for what is not split.  [default: 0]"),
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
    from localspec.session.options import LoadOptions, Options, parse

    given["logit_bias"] = dict(given["logit_bias"]) or None
    for name in ("stop", "stop_ids", "dry_sequence_breakers"):
        given[name] = tuple(given[name]) or None
    loading = {name: given[name] for name in LOADING if given[name] is not None}
    answering = {name: given[name] for name in ANSWERING if given[name] is not None}
    parse(Options, answering)
    parse(LoadOptions, loading)
    return loading, answering


_SHAPING = (
    click.option(
        "--json-schema", "-j", metavar="FILE|JSON", help="The answer is JSON valid under it."
    ),
    click.option("--grammar", metavar="FILE", help="The answer follows this GBNF or Lark grammar."),
    click.option("--choices", metavar="A,B,C", help="The answer is one of these."),
    click.option("--regex", help="The whole answer matches this regular expression."),
    click.option("--logprobs", type=int, help="Best N alternatives of each token, in --json."),
    click.option("--logprobs-of", type=click.Choice(["raw", "processed"])),
    click.option("--prompt-logprobs", type=int, help="The same for the prompt's tokens."),
)


def shaping_options(command: F) -> F:
    """Add them to a command; chosen_shape() reads them."""
    for option in reversed(_SHAPING):
        command = option(command)
    return command


def chosen_shape(given: dict[str, Any]) -> dict[str, Any]:
    """What was given of them, as Options takes it. Raises InvalidOptionError for a bad file."""
    found: dict[str, Any] = {}
    schema = given["json_schema"]
    if schema is not None:
        inline = schema.lstrip()[:1] in ("{", "t")  # an object, or `true`
        found["json_schema"] = schema if inline else _text_of(schema, "--json-schema")
    if given["grammar"] is not None:
        found["grammar"] = _text_of(given["grammar"], "--grammar")
    if given["choices"] is not None:
        found["choices"] = tuple(choice.strip() for choice in given["choices"].split(","))
    for name in ("regex", "logprobs", "logprobs_of", "prompt_logprobs"):
        if given[name] is not None:
            found[name] = given[name]
    return found


def _text_of(path: str, option: str) -> str:
    if not path.strip():
        raise InvalidOptionError(f"{option} is empty: name a file")
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOptionError(f"{option}: {path} cannot be read: {error}") from None
