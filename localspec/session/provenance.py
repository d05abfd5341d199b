"""What made an answer: files, load options, engine. Plain data, compared field by field."""

from __future__ import annotations

from typing import Any

import localspec
from localspec.gguf.fingerprint import fingerprint
from localspec.gguf.header import GGUFHeader
from localspec.llama.devices import engine_identity
from localspec.session.pair import Pair
from localspec.session.plain_data import to_dict

__all__ = ["made_by"]


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
