"""What the orchestrator costs: plain decoding through localspec against a bare decode loop.

Interleaved (A B A B …) in one process, over the same file, threads and context settings; medians
of tokens per second and the ratio of paired runs. Greedy, prefill apart.

With --llama-bench, that tool is the other side instead, on the same file, at the same depth. It
loads the file anew for every figure, and a process keeps the speed that its memory happened to
get; so localspec, too, runs in a fresh process each time, and the order turns from pair to pair.

    python benchmarks/overhead.py [--target REF] [--n-gen 96] [--repeat 7] [--llama-bench PATH]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import llama_cpp
import numpy as np

from localspec.models.references import resolve
from localspec.session.session import Session

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


def plain_once(session: Session, ids: list[int], n_gen: int) -> float:
    """Tokens per second of one plain answer from a cleared cache."""
    session.clear_cache()
    result = session.complete(ids, drafter="none", temperature=0, max_tokens=n_gen)
    session.clear_cache()
    if result.stats.predicted_n < n_gen:
        print(f"the answer ended after {result.stats.predicted_n} of {n_gen} tokens")
    return result.stats.predicted_per_second


def in_fresh_process(args: argparse.Namespace) -> float:
    """plain_once() of a process that loads, warms up by one short answer, and ends."""
    command = [sys.executable, __file__, "--target", args.target, "--n-gen", str(args.n_gen)]
    ran = subprocess.run([*command, "--once"], check=True, stdout=subprocess.PIPE)
    return float(ran.stdout)


def llama_bench(tool: Path, path: Path, *, n_gpu_layers: int, n_threads: int, depth: int,
                n_gen: int) -> float:  # fmt: skip
    """Tokens per second of one run of llama-bench (it warms up by itself; no sampling)."""
    options = {
        "-m": path,
        "-t": n_threads,
        "-ngl": n_gpu_layers,
        "-lm": "auto" if n_gpu_layers else "none",
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


def against_llama_bench(args: argparse.Namespace) -> None:
    """Fresh processes in turn; medians and the ratio of pairs."""
    with Session(resolve(args.target)) as session:
        ids = session.encode([{"role": "user", "content": PROMPT}])
        settings = {
            "n_gpu_layers": session._target.model.n_gpu_layers,
            "n_threads": session.n_threads,
            "depth": len(ids),
            "n_gen": args.n_gen,
        }
        path, device = session.target_path, session.device
    pairs = []
    for i in range(args.repeat):
        sides = {
            "ours": lambda: in_fresh_process(args),
            "theirs": lambda: llama_bench(args.llama_bench, path, **settings),
        }
        order = sorted(sides, reverse=bool(i % 2))
        pair = {side: sides[side]() for side in order}
        print(f"{pair['ours']:.2f} against {pair['theirs']:.2f} tokens/s", flush=True)
        pairs.append((pair["ours"], pair["theirs"]))
    print(f"{path.name}, {device}, {settings['n_threads']} threads, {args.n_gen} tokens")
    report("llama-bench", pairs)


def against_bare_loop(args: argparse.Namespace) -> None:
    """Interleaved in one process."""
    with Session(resolve(args.target)) as session:
        bare = BareLoop(session)
        ids = session.encode([{"role": "user", "content": PROMPT}])
        pairs = []
        for i in range(args.repeat + 1):
            pair = plain_once(session, ids, args.n_gen), bare.run(ids, args.n_gen)
            session.clear_cache()
            if i:  # the first is the warm-up
                pairs.append(pair)
        print(
            f"{session.target_path.name}, {session.device}, {session.n_threads} threads, "
            f"{args.n_gen} tokens"
        )
    report("bare loop", pairs)


def report(other: str, pairs: list[tuple[float, float]]) -> None:
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    print(f"{'localspec plain':16} {ours:.2f} tokens/s (median)")
    print(f"{other:16} {theirs:.2f} tokens/s (median)")
    print(
        f"{'ratio':16} {statistics.median(ratios):.3f} (median of {len(pairs)} pairs, "
        f"{ratios[0]:.3f} to {ratios[-1]:.3f}), {ours / theirs:.3f} of the medians"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="default")
    parser.add_argument("--n-gen", type=int, default=96)
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--llama-bench", type=Path, metavar="PATH")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        with Session(resolve(args.target)) as session:
            ids = session.encode([{"role": "user", "content": PROMPT}])
            plain_once(session, ids, 8)
            print(plain_once(session, ids, args.n_gen))
    elif args.llama_bench:
        against_llama_bench(args)
    else:
        against_bare_loop(args)


if __name__ == "__main__":
    main()
