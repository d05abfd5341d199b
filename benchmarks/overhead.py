"""What the orchestrator costs: plain decoding through localspec against a bare decode loop.

Interleaved (A B A B …) in one process, over the same file, threads and context settings; medians
of tokens per second and the ratio of paired runs. Greedy, prefill apart. With --llama-bench, the
tool of that path takes a third turn in each round, on the same file, at the same depth.

    python benchmarks/overhead.py [--target REF] [--n-gen 96] [--repeat 7] [--llama-bench PATH]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import time
from pathlib import Path

import llama_cpp
import numpy as np

from localspec.library.references import resolve
from localspec.session import Session

PROMPT = "Write a Python function that merges two sorted lists."


class BareLoop:
    """The least code that decodes greedily: one-token batches, argmax over a view of the row."""

    def __init__(self, session: Session) -> None:
        context = session._target
        self.context = context
        self.n_vocab = context.n_vocab
        self.memory = llama_cpp.llama_get_memory(context._ctx)

    def run(self, ids: list[int], n_gen: int) -> float:
        """Tokens per second of n_gen greedy tokens after the prompt."""
        ctx = self.context._ctx
        llama_cpp.llama_memory_clear(self.memory, False)
        prompt = (llama_cpp.llama_token * len(ids))(*ids)
        if llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(prompt, len(ids) - 1)):
            raise RuntimeError("the bare loop's prefill failed")
        llama_cpp.llama_synchronize(ctx)
        token = (llama_cpp.llama_token * 1)(ids[-1])
        started = time.perf_counter()
        for _ in range(n_gen):
            if llama_cpp.llama_decode(ctx, llama_cpp.llama_batch_get_one(token, 1)):
                raise RuntimeError("the bare loop's decode failed")
            pointer = llama_cpp.llama_get_logits_ith(ctx, -1)
            address = ctypes.cast(pointer, ctypes.c_void_p).value
            row = np.frombuffer((ctypes.c_float * self.n_vocab).from_address(address), np.float32)
            token[0] = int(row.argmax())
        return n_gen / (time.perf_counter() - started)


def llama_bench(tool: Path, session: Session, *, depth: int, n_gen: int) -> float:
    """Tokens per second of one run of llama-bench (it warms up by itself; no sampling)."""
    model = session._target.model
    options = {
        "-m": model.path,
        "-t": session.n_threads,
        "-ngl": model.n_gpu_layers,
        "-lm": "auto" if model.n_gpu_layers else "none",
        "-fa": "auto",
        "-p": 0,
        "-n": n_gen,
        "-d": depth,
        "-r": 1,
        "-o": "json",
    }
    command = [str(tool), *(str(word) for option in options.items() for word in option)]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return float(json.loads(ran.stdout)[0]["avg_ts"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="default")
    parser.add_argument("--n-gen", type=int, default=96)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--llama-bench", type=Path, metavar="PATH")
    args = parser.parse_args()
    with Session(resolve(args.target)) as session:
        bare = BareLoop(session)
        ids = session.encode([{"role": "user", "content": PROMPT}])
        pairs, bench = [], []
        for i in range(args.repeat + 1):
            session.clear_cache()
            result = session.complete(ids, drafter="none", temperature=0, max_tokens=args.n_gen)
            session.clear_cache()
            plain = bare.run(ids, result.stats.predicted_n)
            session.clear_cache()
            if i:  # the first is the warm-up
                pairs.append((result.stats.predicted_per_second, plain))
                if args.llama_bench:
                    n_gen = result.stats.predicted_n
                    bench.append(
                        llama_bench(args.llama_bench, session, depth=len(ids), n_gen=n_gen)
                    )
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(
            f"{session.target_path.name}, {session.device}, {session.n_threads} threads, "
            f"{result.stats.predicted_n} tokens, {args.repeat} pairs"
        )
        print(f"localspec plain  {ours:.2f} tokens/s (median)")
        print(f"bare loop        {theirs:.2f} tokens/s (median)")
        print(f"ratio            {ratio:.3f} (median of pairs)")
        if bench:
            share = statistics.median(a / c for (a, _), c in zip(pairs, bench, strict=True))
            print(f"llama-bench      {statistics.median(bench):.2f} tokens/s (median)")
            print(f"localspec share  {share:.3f} (median of pairs)")


if __name__ == "__main__":
    main()
