"""Peak memory of a run against a bare low-level loop over the same two contexts.

Each in a process of its own; peak resident set size as the system reports it.

    python benchmarks/memory.py [--target REF] [--draft REF] [--n-ctx 8192]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

N_GEN = 32
PROMPT = "Write a Python function that merges two sorted lists. " * 60


def run_localspec(target: Path, draft: Path, n_ctx: int) -> None:
    import localspec

    with localspec.load(target, draft, n_ctx=n_ctx) as session:
        session.complete(PROMPT, temperature=0, max_tokens=N_GEN, n_draft=4)


def run_bare(target: Path, draft: Path, n_ctx: int) -> None:
    """Both contexts with the engine's default of logits for every token of a batch."""
    import os

    import llama_cpp

    def decode(ctx: Any, tokens: Any) -> None:
        if llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(tokens, len(tokens))):
            raise RuntimeError("the bare loop's decode failed")

    from localspec.llama.devices import physical_cores
    from localspec.llama.native import init_backend

    init_backend()
    offload = llama_cpp.llama_supports_gpu_offload()
    for path in (target, draft):
        params = llama_cpp.llama_model_default_params()
        if not offload:
            params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = n_ctx, 512, 512
        context.n_threads = context.n_threads_batch = physical_cores()
        ctx = llama_cpp.llama_init_from_model(model, context)
        vocab = llama_cpp.llama_model_get_vocab(model)
        text = PROMPT.encode()
        tokens = (llama_cpp.llama_token * len(text))()
        n = llama_cpp.llama_tokenize(vocab, text, len(text), tokens, len(text), True, False)
        for start in range(0, n, 512):
            ids = tokens[start : min(start + 512, n)]
            piece = (llama_cpp.llama_token * len(ids))(*ids)
            decode(ctx, piece)
        one = (llama_cpp.llama_token * 1)(tokens[0])
        for _ in range(N_GEN):
            decode(ctx, one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="default")
    parser.add_argument("--draft", help="the pair's own if left out")
    parser.add_argument("--n-ctx", type=int, default=8192)
    parser.add_argument("--only", choices=["localspec", "bare"])
    args = parser.parse_args()
    if args.only:
        run = {"localspec": run_localspec, "bare": run_bare}[args.only]
        run(Path(args.target), Path(args.draft), args.n_ctx)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(peak * (1 if sys.platform == "darwin" else 1024))
        return
    from localspec.models.references import pair_draft, resolve

    draft = args.draft or pair_draft(args.target)
    if draft is None:
        parser.error("--draft is needed: the target is no pair of the catalog")
    files = ["--target", str(resolve(args.target)), "--draft", str(resolve(draft, role="draft"))]
    peaks = {}
    for name in ("bare", "localspec"):
        command = [sys.executable, __file__, "--only", name, "--n-ctx", str(args.n_ctx), *files]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        peaks[name] = int(ran.stdout)
        print(f"{name:<10} peak {peaks[name] / 1e6:.0f} MB")
    print(f"difference {(peaks['localspec'] - peaks['bare']) / 1e6:+.0f} MB at n_ctx {args.n_ctx}")


if __name__ == "__main__":
    main()
