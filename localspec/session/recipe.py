"""How to make an answer again, as plain data, and how far a seed promises the same text.

Two things decide the promise. The rule: *match* and greedy text depend on the seed alone, neither
on drafts nor on their lengths; *rejection* and *block* repeat only with the same draft lengths and
the same draft temperature. The bits: llama.cpp computes slightly other logits in other batch
shapes, so that near ties may fall otherwise where the shapes are not the same (README, "The
promise").
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import localspec
from localspec.decoding.events import Stats
from localspec.errors import InvalidOptionError
from localspec.gguf.fingerprint import fingerprint
from localspec.gguf.header import GGUFHeader
from localspec.llama.devices import engine_identity
from localspec.session.options import DRAFTERS, Options
from localspec.session.pair import Pair
from localspec.session.plain_data import to_dict

__all__ = ["Promise", "PromiseKind", "Recipe", "made_by", "promise_of", "recipe_of"]

PromiseKind: TypeAlias = Literal["bits", "near ties", "law"]

_VERSION = 1  # of a recipe


@dataclass(frozen=True, slots=True)
class Promise:
    """How far the same answer comes again on the same machine, engine and files.

    kind: `bits`, the same ids always; `near ties`, the same ids but where two tokens are almost
    tied; `law`, another sample of the same law. words: why, for a person.
    exact: the models were loaded so. cold: nothing of the prompt came from the cache.
    """

    kind: PromiseKind
    words: str
    exact: bool
    cold: bool


def promise_of(
    *,
    verifier: str,
    greedy: bool,
    seeded: bool,
    fixed_lengths: bool,
    exact: bool,
    cold: bool,
) -> Promise:
    """verifier: the rule in use. seeded: the caller gave the seed, so that nothing learned
    before chose the draft temperature. fixed_lengths: n_draft was given, or nothing was drafted.
    """
    if verifier == "match" or greedy:
        rule = "greedy text" if greedy else "match: the text depends on the seed alone"
        if cold and (exact or fixed_lengths):
            why = "exact batch sizes" if exact else "a fixed n_draft"
            return Promise("bits", f"{rule}; {why} and a cold cache fix the bits", exact, cold)
        reasons = [] if cold else ["part of the prompt came from the cache"]
        if not (exact or fixed_lengths):
            reasons.append("draft lengths followed the clock")
        return Promise("near ties", f"{rule}; but {' and '.join(reasons)}", exact, cold)
    if not (seeded and fixed_lengths):
        missing = "no seed was given" if not seeded else "draft lengths followed the clock"
        return Promise("law", f"{verifier} depends on the drafts, and {missing}", exact, cold)
    kind: PromiseKind = "bits" if cold else "near ties"
    cache = "a cold cache" if cold else "a reused cache"
    return Promise(
        kind, f"{verifier} with a seed, a fixed n_draft, a fixed draft temperature, {cache}",
        exact, cold,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """Session.rerun makes the answer again; to_json() carries it to another process.

    prompt_ids: the prompt as it was evaluated. options: of the answer, the seed that was drawn
    included. made_by: files (name, size in bytes, fingerprint), load options, engine and version.
    promise: how far the answer comes again (see Promise.kind).
    """

    prompt_ids: tuple[int, ...]
    options: dict[str, Any]
    made_by: dict[str, Any]
    promise: str

    def to_dict(self) -> dict[str, Any]:
        """Only what JSON can say."""
        return {
            "type": "recipe",
            "version": _VERSION,
            "prompt_ids": list(self.prompt_ids),
            "options": self.options,
            "made_by": self.made_by,
            "promise": self.promise,
        }

    def to_json(self) -> str:
        """One line."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, given: Any) -> Recipe:
        """What to_dict() made, or its JSON text. Raises InvalidOptionError for anything else."""
        try:
            row = json.loads(given) if isinstance(given, (str, bytes)) else given
            if row["type"] != "recipe":
                raise ValueError(f"its type is {row['type']!r}")
            if row["version"] != _VERSION:
                raise ValueError(f"version {row['version']!r}, and this localspec knows {_VERSION}")
            return cls(
                tuple(int(token) for token in row["prompt_ids"]),
                dict(row["options"]),
                dict(row["made_by"]),
                str(row["promise"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidOptionError(f"this is no recipe of an answer: {error}") from None

    def differences(self, made_by: dict[str, Any]) -> list[str]:
        """In words, what a session has otherwise than the one that made the answer."""
        return [
            f"{name}: {self.made_by.get(name)!r} then, {made_by.get(name)!r} now"
            for name in sorted({*self.made_by, *made_by})
            if self.made_by.get(name) != made_by.get(name)
        ]


def made_by(pair: Pair) -> dict[str, Any]:
    """target and draft: name, fingerprint; load: options with what they came to; engine."""
    target = pair.target
    return {
        "localspec": localspec.__version__,
        "engine": list(engine_identity()),
        "target": _file(pair.target_header),
        "draft": _file(pair.draft_header) if pair.draft_header and pair.draft else None,
        "load": {
            **to_dict(pair.options),
            "n_ctx": target.n_ctx,
            "n_batch": target.n_batch,
            "n_threads": pair.n_threads,
            "n_gpu_layers": target.model.n_gpu_layers,
            "type_k": target.type_k,
            "type_v": target.type_v,
        },
    }


def _file(header: GGUFHeader) -> dict[str, Any]:
    return {"name": header.path.name, "fingerprint": fingerprint(header.path)}


def recipe_of(
    prompt_ids: Sequence[int],
    options: Options,
    stats: Stats,
    made_by: dict[str, Any],
    *,
    verifier: str,
    drafter: str,
    exact: bool,
    cold: bool,
) -> tuple[Recipe, Promise]:
    """verifier, drafter: as the answer began. exact, cold: see Promise."""
    is_built_in = drafter in DRAFTERS
    promise = promise_of(
        verifier=verifier,
        greedy=options.greedy,
        seeded=options.seed not in (None, -1),
        fixed_lengths=drafter == "none" or (is_built_in and options.n_draft is not None),
        exact=exact,
        cold=cold,
    )
    said = to_dict(options)
    usual = to_dict(Options())
    chosen = {name: value for name, value in said.items() if value != usual[name]}
    if not isinstance(options.drafter, str):
        chosen.pop("drafter", None)  # an object of the program: match does without it
    if not isinstance(options.controller, str):
        chosen.pop("controller", None)
    chosen["seed"] = stats.seed
    if verifier == "match":
        chosen["verifier"] = "match"
    return Recipe(tuple(prompt_ids), chosen, made_by, promise.kind), promise
