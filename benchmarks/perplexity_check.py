"""localspec's quality figures beside those of llama.cpp's own llama-perplexity.

Both read the same text with the same files: a reference model, and quant levels made from it.
Upstream then also reads the log-probabilities that localspec stored. Ends with exit code 1 when a
perplexity or a mean KL divergence of the two programs differs by more than 0.5 %.

    python benchmarks/perplexity_check.py --llama-perplexity PATH [--reference REF]
        [--quants Q4_0,Q2_K] [--text FILE] [--n-ctx 512] [--n-chunks N] [--folder FOLDER]

The folder keeps the quantised files; it needs some gigabytes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from localspec.bench.quality import Divergence, measure_divergence
from localspec.bench.reference import Reference
from localspec.bench.text_reader import Text, built_in, read_text
from localspec.llama.devices import physical_cores
from localspec.llama.quantize import quantize
from localspec.models.references import pair_draft, resolve
from localspec.session.options import LoadOptions

ALLOWED = 0.005
_NUMBER = r"\s*(-?[\d.]+)"
_PATTERNS = {
    "PPL": rf"Mean PPL\(Q\)\s*:{_NUMBER}",
    "PPL error": rf"Mean PPL\(Q\)\s*:{_NUMBER} ±{_NUMBER}",
    "PPL of the reference": rf"Mean PPL\(base\)\s*:{_NUMBER}",
    "mean ln PPL ratio": rf"Mean ln\(PPL\(Q\)/PPL\(base\)\)\s*:{_NUMBER}",
    "ln PPL ratio error": rf"Mean ln\(PPL\(Q\)/PPL\(base\)\)\s*:{_NUMBER} ±{_NUMBER}",
    "mean KL": rf"Mean\s+KLD:{_NUMBER}",
    "KL error": rf"Mean\s+KLD:{_NUMBER} ±{_NUMBER}",
    "KL median": rf"Median\s+KLD:{_NUMBER}",
    "KL 90 %": rf"90\.0%\s+KLD:{_NUMBER}",
    "KL 99 %": rf"99\.0%\s+KLD:{_NUMBER}",
    "KL maximum": rf"Maximum KLD:{_NUMBER}",
    "same top, %": rf"Same top p:{_NUMBER}",
    "same top error, %": rf"Same top p:{_NUMBER} ±{_NUMBER}",
}
_JUDGED = ("PPL", "PPL of the reference", "mean KL")


class Upstream:
    """llama-perplexity on one text."""

    def __init__(self, args: argparse.Namespace, text: Text) -> None:
        self._program = args.llama_perplexity
        self._file = args.folder / "text.txt"
        self._file.write_bytes(text.content.encode() + b"\n")  # of which it drops the newline
        self._common = ["-c", str(args.n_ctx), "-t", str(args.threads)]
        if args.n_chunks:
            self._common += ["--chunks", str(args.n_chunks)]

    def record(self, model: Path, base: Path) -> dict[str, float]:
        """Perplexity; the log-probabilities go to `base`."""
        out = self._run(model, ["-f", str(self._file), "--save-all-logits", str(base)])
        found = re.search(rf"Final estimate: PPL ={_NUMBER} \+/-{_NUMBER}", out)
        if found is None:
            raise SystemExit(f"no perplexity in the output of {self._program}:\n{out[-2000:]}")
        return {"PPL": float(found[1]), "PPL error": float(found[2])}

    def compare(self, model: Path, base: Path) -> dict[str, float]:
        """What it prints about a model and a base file."""
        out = self._run(model, ["--kl-divergence-base", str(base), "--kl-divergence"])
        figures = {name: re.search(pattern, out) for name, pattern in _PATTERNS.items()}
        missing = [name for name, found in figures.items() if found is None]
        if missing:
            raise SystemExit(f"{self._program} printed no {', '.join(missing)}:\n{out[-2000:]}")
        return {
            name: float(found[found.lastindex or 1])
            for name, found in figures.items()
            if found is not None
        }

    def _run(self, model: Path, more: list[str]) -> str:
        command = [str(self._program), "-m", str(model), *self._common, *more]
        started = perf_counter()
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        print(f"  llama-perplexity: {perf_counter() - started:.0f} s", file=sys.stderr)
        if ended.returncode:
            raise SystemExit(f"{self._program} failed:\n{ended.stdout[-2000:]}")
        return ended.stdout


def figures_of(divergence: Divergence) -> dict[str, float]:
    """The same figures, by localspec."""
    return {
        "PPL": divergence.perplexity.value,
        "PPL error": divergence.perplexity.error,
        "PPL of the reference": divergence.reference_perplexity.value,
        "mean ln PPL ratio": divergence.log_ppl_ratio.value,
        "ln PPL ratio error": divergence.log_ppl_ratio.error,
        "mean KL": divergence.kl.value,
        "KL error": divergence.kl.error,
        "KL median": divergence.kl_median,
        "KL 90 %": divergence.kl_p90,
        "KL 99 %": divergence.kl_p99,
        "KL maximum": divergence.kl_max,
        "same top, %": 100 * divergence.same_top.value,
        "same top error, %": 100 * divergence.same_top.error,
    }


def table(title: str, columns: dict[str, dict[str, float]]) -> None:
    """Figures side by side; the last column is the first over the second, less one."""
    first, second, *_ = columns.values()
    print(f"\n{title}\n{'':<22}" + "".join(f"{name:>24}" for name in columns) + f"{'apart':>10}")
    for name in first:
        values = "".join(f"{column.get(name, float('nan')):>24.6f}" for column in columns.values())
        print(f"{name:<22}{values}{100 * apart(first[name], second[name]):>9.3f}%")


def apart(a: float, b: float) -> float:
    """Of a from b, relative."""
    return a / b - 1 if b else 0.0


def progress(done: int, total: int, perplexity: float) -> None:
    """One line that renews itself."""
    end = "\n" if done == total else ""
    print(
        f"\r  localspec: {done}/{total} PPL {perplexity:.4f}", end=end, file=sys.stderr, flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--llama-perplexity", type=Path, required=True)
    parser.add_argument("--reference", help="a model; the default pair's draft if left out")
    parser.add_argument("--quants", default="Q4_0,Q2_K")
    parser.add_argument("--text", type=Path, help="the built-in one if left out")
    parser.add_argument("--n-ctx", type=int, default=512)
    parser.add_argument("--n-chunks", type=int)
    parser.add_argument("--n-batch", type=int, default=512, help="localspec's")
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--folder", type=Path, default=Path("perplexity_check"))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    text = read_text(args.text) if args.text else built_in()
    model = resolve(args.reference or str(pair_draft("default")), role="draft")
    loading = LoadOptions(n_ctx=args.n_ctx, n_batch=args.n_batch, n_threads=args.threads)
    upstream, base = Upstream(args, text), args.folder / "upstream.kld"

    print(f"reference {model.name}, text {text.name}", file=sys.stderr)
    theirs = upstream.record(model, base)
    reference = Reference.record(
        model,
        text,
        args.folder / "reference",
        loading=loading,
        n_chunks=args.n_chunks,
        on_progress=progress,
    )
    ours = {"PPL": reference.perplexity.value, "PPL error": reference.perplexity.error}
    title = f"{model.name}, {reference.chunks.n_chunks} chunks, {reference.chunks.n_scored} tokens"
    table(title, {"localspec": ours, "llama-perplexity": theirs})
    print(f"localspec read the text in {reference.seconds:.1f} s")
    worst = abs(apart(ours["PPL"], theirs["PPL"]))
    for quant in args.quants.split(","):
        path = args.folder / f"{model.stem}-{quant}.gguf"
        if not path.exists():
            quantize(model, path, quant)
        found = measure_divergence(path, reference, loading=loading, on_progress=progress)
        columns = {
            "localspec": figures_of(found),
            "llama-perplexity": upstream.compare(path, base),
            "same, localspec's base": upstream.compare(path, reference.folder / "reference.kld"),
        }
        table(f"{quant} of it", columns)
        overlap = found.overlap
        print(f"Σ min(p, q) {overlap.value:.4f} ± {overlap.error:.4f}; {found.seconds:.1f} s")
        ours, theirs = columns["localspec"], columns["llama-perplexity"]
        worst = max(worst, *(abs(apart(ours[name], theirs[name])) for name in _JUDGED))
    print(f"\nlargest difference of a perplexity or a mean KL: {100 * worst:.3f} %")
    sys.exit(worst > ALLOWED)


if __name__ == "__main__":
    main()
