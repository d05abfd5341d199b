"""Peak memory of a run against a bare low-level loop over the same two contexts.

Each in a process of its own; peak resident set size as the system reports it.

    python benchmarks/memory.py [--n-ctx 8192]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

N_GEN = 32
PROMPT = "Write a Python function that merges two sorted lists. " * 60


def run_localspec(n_ctx: int) -> None:
    import localspec

    with localspec.load("default", n_ctx=n_ctx) as session:
        session.complete(PROMPT, temperature=0, max_tokens=N_GEN, n_draft=4)


def run_bare(n_ctx: int) -> None:
    """Both contexts with the engine's default of logits for every token of a batch."""
    import os

    import llama_cpp

    from localspec.library.references import pair_draft, resolve
    from localspec.llama.native import init_backend

    init_backend()
    files = [resolve("default"), resolve(pair_draft("default") or "", role="draft")]
    for path in files:
        params = llama_cpp.llama_model_default_params()
        params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_batch, context.n_ubatch = n_ctx, 512, 512
        ctx = llama_cpp.llama_init_from_model(model, context)
        vocab = llama_cpp.llama_model_get_vocab(model)
        text = PROMPT.encode()
        tokens = (llama_cpp.llama_token * len(text))()
        n = llama_cpp.llama_tokenize(vocab, text, len(text), tokens, len(text), True, False)
        for start in range(0, n, 512):
            piece = (llama_cpp.llama_token * min(512, n - start))(*tokens[start : start + 512])
            llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(piece, len(piece)))
        one = (llama_cpp.llama_token * 1)(tokens[0])
        for _ in range(N_GEN):
            llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(one, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-ctx", type=int, default=8192)
    parser.add_argument("--only", choices=["localspec", "bare"])
    args = parser.parse_args()
    if args.only:
        {"localspec": run_localspec, "bare": run_bare}[args.only](args.n_ctx)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(peak * (1 if sys.platform == "darwin" else 1024))
        return
    peaks = {}
    for name in ("bare", "localspec"):
        command = [sys.executable, __file__, "--only", name, "--n-ctx", str(args.n_ctx)]
        peaks[name] = int(subprocess.run(command, check=True, capture_output=True).stdout)
        print(f"{name:<10} peak {peaks[name] / 1e6:.0f} MB")
    print(f"difference {(peaks['localspec'] - peaks['bare']) / 1e6:+.0f} MB at n_ctx {args.n_ctx}")


if __name__ == "__main__":
    main()
