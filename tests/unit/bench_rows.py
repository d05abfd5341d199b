"""Rows of a sweep that never ran: what the report and the recommendation are tested on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from localspec.bench.configuration import Configuration, summarise
from localspec.bench.plan import NO_DRAFT, PLAIN
from localspec.bench.results_file import QualityRow
from localspec.bench.sweep_results import SweepResults, read_sweep

Row = dict[str, Any]
MACHINE = {
    "cpu_info": "a processor",
    "gpu_info": "",
    "n_cpus": 2,
    "memory_bytes": 8_000_000_000,
    "system": "Linux x86_64",
    "python": "3.11.7",
    "engine": "llama-cpp-python 0.3.36",
    "localspec": "0.1.0",
}
PROMPTS = ("a", "b", "c")


def header(**changed: Any) -> Row:
    """The first row."""
    return {
        "type": "sweep",
        "version": 1,
        "test_time": "2026-01-01T00:00:00+00:00",
        "workload": {"prompts": "1234", "n_gen": 20, "answering": {"temperature": 0.0}},
        "prompts_name": "quick",
        "prompts": [[prompt, "code"] for prompt in PROMPTS],
        "repeat": 2,
        "n_drafts": [3],
        "delay_s": 0.0,
        "loading": {},
        "machine": MACHINE,
        **changed,
    }


def run(setting: str, prompt: str, repetition: int, tokens_per_s: float) -> Row:
    """One answer of 20 tokens, its drafts of 3 accepted twice in three."""
    drafts = setting != PLAIN
    return {
        "type": "run",
        "setting": setting,
        "prompt": prompt,
        "category": "code",
        "repetition": repetition,
        "test_time": "2026-01-01T00:00:00+00:00",
        "n_prompt": 10,
        "n_gen": 20,
        "avg_ns": round(20 / tokens_per_s * 1e9),
        "avg_ts": tokens_per_s,
        "prompt_per_second": 100.0,
        "draft_s": 5 / tokens_per_s if drafts else 0.0,
        "verify_s": 14 / tokens_per_s,
        "other_s": 1 / tokens_per_s,
        "draft_n": 30 if drafts else 0,
        "draft_n_accepted": 10 if drafts else 0,
        "draft_n_rejected": 5 if drafts else 0,
        "n_passes": 10 if drafts else 20,
        "drafter": "model" if drafts else "none",
        "verifier": "match",
        "reason": "length",
        "same_as_plain": True,
        "ttft_s": 0.1,
        "accepted_by_position": [8, 2] if drafts else [],
        "judged_by_position": [10, 8] if drafts else [],
    }


def pair_rows(
    target: str,
    draft: str,
    speeds: Mapping[str, float],
    *,
    spread: float = 0.02,
    peak_gb: float = 2.0,
    from_lossy: bool = False,
) -> list[Row]:
    """Runs, prediction, pair and configurations; speeds in tokens/s by setting, plain first."""
    key = {"target": target, "draft": draft}
    runs = [
        {**key, **run(name, prompt, i, speed * (1 + spread * (j - 1) + spread / 4 * i))}
        for i in range(2)
        for j, prompt in enumerate(PROMPTS)
        for name, speed in speeds.items()
    ]
    ratio = {name: speed / speeds[PLAIN] for name, speed in speeds.items() if name != PLAIN}
    predictions: list[Row] = [
        {
            "type": "prediction",
            **key,
            "prompt": prompt,
            "category": "code",
            "n_gen": 20,
            "plain_ts": speeds[PLAIN],
            "speed_up": {
                (name if name.startswith("K=") else "controller, model"): value
                for name, value in ratio.items()
            },
            "sum_min": 0.8 if draft != NO_DRAFT else None,
        }
        for prompt in PROMPTS
    ]
    pair: Row = {
        "type": "pair",
        **key,
        "load_s": 1.0,
        "peak_rss_bytes": round(peak_gb * 1e9),
        "vram_bytes": None,
        "device": "CPU",
        "power": None,
        "n_threads": 2,
        "n_ctx": 8192,
        "n_batch": 512,
        "n_gpu_layers": 0,
        "flash_attn": "auto",
        "type_k": "f16",
        "type_v": "f16",
        "draft_size": 5 if draft != NO_DRAFT else None,
        "t_ms": {"1": 10.0, "2": 12.0, "4": 15.0},
        "d_ms": {"1": 2.0, "2": 3.0},
    }
    rows: list[Row] = [*runs, *predictions, pair]
    for name in speeds:
        flags = {PLAIN: "--drafter none", "auto": ""}.get(name, "--drafter model --n-draft 3")
        head = {
            **key,
            "setting": name,
            "flags": flags,
            "target_reference": f"{target}.gguf",
            "draft_reference": f"{draft}.gguf" if draft != NO_DRAFT else None,
            "model_filename": f"{target}.gguf",
            "draft_filename": f"{draft}.gguf" if draft != NO_DRAFT else None,
            "target_quant": "Q4_0",
            "draft_quant": "Q4_0" if draft != NO_DRAFT else None,
            "model_size": 10,
            "target_from_lossy": from_lossy,
            "draft_from_lossy": False,
        }
        rows.append(summarise(head, rows, pair, n_gen=20).as_row())
    return rows


def unmeasured(rows: list[Row], **changed: Any) -> Row:
    """The fields of a pair's configurations that need no measurement."""
    needed = [f.name for f in fields(Configuration) if f.default is f.default_factory is MISSING]
    return {**{name: rows[-1][name] for name in needed}, **changed}


def quality_row(target: str, kl: float | None, reference: str) -> Row:
    """What a reading of 1,000 tokens found."""
    return QualityRow(
        target=target,
        reference=reference,
        perplexity=10.0 + (kl or 0.0),
        perplexity_error=0.1,
        kl_mean=kl,
        kl_error=0.001 if kl is not None else None,
        top1_agreement=0.9 if kl is not None else None,
        n_tokens=1000,
    ).as_row()


def sweep(*pairs: list[Row], more: list[Row] | None = None, **changed: Any) -> SweepResults:
    """The results of these pairs."""
    return read_sweep([header(**changed), *(row for rows in pairs for row in rows), *(more or [])])
