"""From the options of `localspec bench` to a plan, and the sweep run with its progress shown."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from localspec.bench.levels import LevelBegun, levels, require_types
from localspec.bench.model_files import ModelFile, model_file, unique_labels
from localspec.bench.plan import NO_DRAFT, Plan
from localspec.bench.prompts import read_prompts, select
from localspec.bench.quality_sweep import QualitySweep
from localspec.bench.results_file import ResultsFile
from localspec.bench.sweep import Sweep
from localspec.bench.sweep_results import SweepResults, read_sweep
from localspec.bench.text_reader import DEFAULT_N_CTX, read_text, require_bytes
from localspec.cli.bench_progress import Display, open_display, show_level_progress
from localspec.cli.loading import fetch
from localspec.errors import CancelledError, InvalidOptionError
from localspec.llama.importance import read_importance
from localspec.models.references import locate, pair_draft
from localspec.session.options import LoadOptions, parse

__all__ = ["plan_of", "run_sweep"]

_LOADING = ("n_ctx", "n_batch", "n_threads", "n_gpu_layers", "n_gpu_layers_draft", "flash_attn",
            "type_k", "type_v")  # fmt: skip
DEFAULT = "default"


def run_sweep(given: dict[str, Any]) -> SweepResults:
    """Plan and measure; all that the folder holds then."""
    folder: Path = given["out"]
    plan = plan_of(given)
    with ResultsFile(folder) as results:
        try:
            with open_display() as display:
                _introduce(plan, results, display)
                quality = QualitySweep(plan, results, display.doing, display.say)
                Sweep(plan, results, display.show).run()
                if plan.has_quality:
                    quality.run()
        except KeyboardInterrupt:
            n = len(results.of_type("run"))
            click.echo(
                f"localspec: stopped. Nothing that was measured is lost: {n} answers are in "
                f"{results.path}. The same command continues there; `localspec bench report "
                f"{folder}` shows what there is so far",
                err=True,
            )
            raise CancelledError("interrupted") from None
        return read_sweep(results.rows)


def plan_of(given: dict[str, Any]) -> Plan:
    """Everything that a person can get wrong is told here, before a model is loaded."""
    loading = {name: given[name] for name in _LOADING if given[name] is not None}
    parse(LoadOptions, loading)
    if given["text"] is not None:
        text = read_text(given["text"])
        if not given["no_quality"]:
            require_bytes(len(text.content.encode()), DEFAULT_N_CTX, text.name)
    quants = require_types((given["quants"] or "").split(","))
    if given["imatrix"] is not None:
        if not quants:
            raise InvalidOptionError("--imatrix is for making levels: name them with --quants")
        read_importance(given["imatrix"])
    prompts = read_prompts(given["prompts"])
    if given["n_prompts"] is not None:
        prompts = select(prompts, given["n_prompts"])
    if given["raw"]:
        prompts = tuple(replace(prompt, is_raw=True) for prompt in prompts)
    target_names = _split(given["targets"]) or [DEFAULT]
    for name in target_names:
        locate(name, "target")  # a wrong name before any download
    draft_names, quants_of_drafts = _draft_names(target_names, _split(given["drafts"]), quants)
    for name in draft_names:
        locate(name, "draft")
    targets = _model_files(target_names, "target", quants, given["imatrix"])
    drafts = _model_files(draft_names, "draft", quants_of_drafts, None)
    return Plan(
        targets=targets,
        drafts=drafts,
        prompts=prompts,
        prompts_name=given["prompts"],
        n_gen=given["n_gen"],
        repeat=given["repeat"],
        n_drafts=given["n_drafts"],
        delay_s=given["delay"],
        loading=loading,
        answering={"temperature": given["temperature"]},
        text=given["text"],
        n_chunks=given["n_chunks"],
        has_quality=not given["no_quality"],
    )


def _draft_names(
    targets: Sequence[str], drafts: Sequence[str], quants: Sequence[str]
) -> tuple[list[str], Sequence[str]]:
    """References of the drafts, and the levels to make of them."""
    if drafts:
        return [name for name in drafts if name != NO_DRAFT], ()
    own = [found for name in targets if (found := pair_draft(name)) is not None]
    return list(dict.fromkeys(own)), quants


def _model_files(
    names: Iterable[str], role: str, quants: Sequence[str], imatrix: Path | None
) -> tuple[ModelFile, ...]:
    found: list[ModelFile] = []
    for name in names:
        path = fetch(name, role)
        reference = str(path) if isinstance(locate(name, role), Path) else name
        if not quants:
            found.append(model_file(path, reference))
            continue
        with _watched() as on_make:
            found += levels(path, reference, quants, importance=imatrix, on_make=on_make)
    return unique_labels(found)


@contextlib.contextmanager
def _watched() -> Iterator[Any]:
    """Say on stderr which level is made, and how far it is."""
    with contextlib.ExitStack() as stack:

        def on_make(level: LevelBegun) -> None:
            stack.close()
            stack.enter_context(show_level_progress(level))

        yield on_make


def _introduce(plan: Plan, results: ResultsFile, display: Display) -> None:
    n_before = len(results.of_type("run"))
    lossy = [c.label for c in (*plan.targets, *plan.drafts) if c.from_lossy]
    display.say(
        f"targets: {len(plan.targets)}, drafts: {len(plan.drafts)}, prompts: {len(plan.prompts)}, "
        f"repetitions: {plan.repeat}; {plan.n_runs} answers of up to {plan.n_gen} tokens"
    )
    if n_before:
        display.say(f"continuing {results.path}: {n_before} answers are already there")
    if lossy:
        display.say(
            "note: made from a source that was already quantised, so for speed only: "
            + ", ".join(lossy)
        )


def _split(values: Sequence[str]) -> list[str]:
    """Commas separate, unless the whole is the name of a file."""
    found: list[str] = []
    for value in values:
        whole = os.path.isfile(os.path.expanduser(value))  # a list may be too long for a path
        found += [value] if whole else [part.strip() for part in value.split(",") if part.strip()]
    if values and not found:
        raise InvalidOptionError("a list of models is empty: name files or references")
    return list(dict.fromkeys(found))
