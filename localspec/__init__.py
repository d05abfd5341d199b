"""Lossless speculative decoding for GGUF models.

`load` a target and a draft, then `complete`, `chat` or `stream`:

    with localspec.load("default") as session:
        print(session.complete("def fib(n):", max_tokens=64).text)

Every name of `__all__` is public and stays; docs/api.md lists them with their docstrings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.decoding.controller import Controller, Pace
    from localspec.decoding.draft import Draft, Drafter
    from localspec.decoding.events import (
        Alternative,
        Event,
        Finished,
        Prefill,
        Round,
        RoundToken,
        Stats,
    )
    from localspec.decoding.logprobs import TokenLogprob, TopLogprob
    from localspec.drafting.custom_drafter import Guesser, Predictor
    from localspec.errors import (
        AttachmentError,
        BusyError,
        CancelledError,
        CatalogError,
        ChatTemplateError,
        ConfigError,
        ContextOverflowError,
        ControllerError,
        DiskSpaceError,
        DownloadError,
        DrafterError,
        EmptyPromptError,
        EngineError,
        InvalidOptionError,
        LocalspecError,
        ModelFileError,
        ModelKindError,
        ModelNotFoundError,
        NotEnoughMemoryError,
        NoTokenError,
        PluginError,
        ResultsFileError,
        SavedChatError,
        StateFileError,
        TextError,
        VocabularyMismatchError,
    )
    from localspec.llama.vocabulary import Vocabulary
    from localspec.sampling.distribution import Distribution
    from localspec.session.async_answers import AsyncEvents
    from localspec.session.batch_results import Answered
    from localspec.session.branch import Branch
    from localspec.session.completion import Completion
    from localspec.session.options import LoadOptions, Options
    from localspec.session.plain_data import to_dict, to_json
    from localspec.session.recipe import Promise, Recipe
    from localspec.session.session import Session, load
    from localspec.session.tool_calls import ToolCall

__version__ = "0.1.0"

__all__ = [
    "Alternative",
    "Answered",
    "AsyncEvents",
    "AttachmentError",
    "Branch",
    "BusyError",
    "CancelledError",
    "CatalogError",
    "ChatTemplateError",
    "Completion",
    "ConfigError",
    "ContextOverflowError",
    "Controller",
    "ControllerError",
    "DiskSpaceError",
    "Distribution",
    "DownloadError",
    "Draft",
    "Drafter",
    "DrafterError",
    "EmptyPromptError",
    "EngineError",
    "Event",
    "Finished",
    "Guesser",
    "InvalidOptionError",
    "LoadOptions",
    "LocalspecError",
    "ModelFileError",
    "ModelKindError",
    "ModelNotFoundError",
    "NoTokenError",
    "NotEnoughMemoryError",
    "Options",
    "Pace",
    "PluginError",
    "Predictor",
    "Prefill",
    "Promise",
    "Recipe",
    "ResultsFileError",
    "Round",
    "RoundToken",
    "SavedChatError",
    "Session",
    "StateFileError",
    "Stats",
    "TextError",
    "TokenLogprob",
    "ToolCall",
    "TopLogprob",
    "Vocabulary",
    "VocabularyMismatchError",
    "load",
    "to_dict",
    "to_json",
]

# Imported on first use: `localspec --help` must not wait for the engine to load.
_HOMES = {
    "localspec.session.tool_calls": ("ToolCall",),
    "localspec.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "localspec.llama.vocabulary": ("Vocabulary",),
    "localspec.session.options": ("LoadOptions", "Options"),
    "localspec.session.plain_data": ("to_dict", "to_json"),
    "localspec.sampling.distribution": ("Distribution",),
    "localspec.session.batch_results": ("Answered",),
    "localspec.session.async_answers": ("AsyncEvents",),
    "localspec.session.branch": ("Branch",),
    "localspec.session.completion": ("Completion",),
    "localspec.session.recipe": ("Promise", "Recipe"),
    "localspec.session.session": ("Session", "load"),
    "localspec.decoding.controller": ("Controller", "Pace"),
    "localspec.decoding.draft": ("Draft", "Drafter"),
    "localspec.decoding.events": (
        "Alternative",
        "Event",
        "Finished",
        "Prefill",
        "Round",
        "RoundToken",
        "Stats",
    ),
    "localspec.decoding.logprobs": ("TokenLogprob", "TopLogprob"),
    "localspec.drafting.custom_drafter": ("Guesser", "Predictor"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'localspec' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
