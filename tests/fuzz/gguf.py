"""Damaged GGUF files through the reader, the trial and a load: each is loaded or named.

    python -m tests.fuzz.gguf --n 5000 [--seed 1] [--only 1234]

Each case is made from the seed and its number alone, so that `--only` repeats it. What may end a
process runs in a fork of this one; a death in the trial is what the trial is for, a death in the
load that follows is a failure, and so is any exception that is no LocalspecError.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.cli.models_commands import _facts
from localspec.errors import LocalspecError
from localspec.gguf.header import read_header
from localspec.gguf.model_checks import check_model
from localspec.gguf.model_kind import require_language_model
from localspec.llama import probe as vetting
from localspec.llama.architectures import knows_architecture
from localspec.llama.probe import examine
from localspec.session.options import LoadOptions
from localspec.session.session import Session
from tests import tiny_models
from tests.fuzz.mutate import mutated

_OK, _NAMED, _BUG = 0, 40, 41
_MEMORY, _SECONDS = 6 << 30, 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """stage: where it was decided. failed: the promise was broken."""

    stage: str
    words: str
    failed: bool = False


def bases(folder: Path) -> list[Path]:
    """Intact files of every kind that the tiny models have."""
    made = {
        "bytes": lambda p: tiny_models.write_llama(p, vocab="bytes"),
        "plain": lambda p: tiny_models.write_llama(p),
        "mamba": lambda p: tiny_models.write_mamba(p),
        "swa": lambda p: tiny_models.write_gemma_swa(p, vocab="bytes"),
        "projector": tiny_models.write_projector,
        "adapter": tiny_models.write_adapter,
        "bert": tiny_models.write_bert,
    }
    return [write(folder / f"base-{name}.gguf") for name, write in made.items()]


def case(files: list[bytes], seed: int, number: int) -> tuple[bytes, list[str]]:
    """The damaged bytes of one case, and what was done."""
    dice = random.Random(f"{seed}-{number}")
    language_models = dice.random() < 0.9
    data = dice.choice(files[:4] if language_models else files)
    return mutated(data, dice)


def outcome(path: Path) -> Outcome:
    """What becomes of one file."""
    try:
        header = read_header(path)
        _facts(header)
        require_language_model(header, "target")
        check_model(header)
    except LocalspecError as error:
        return Outcome("reader", str(error))
    except Exception:
        return Outcome("reader", traceback.format_exc(), failed=True)
    if not knows_architecture(header.architecture):
        return Outcome("architecture", header.architecture)
    code, said = _forked(lambda: examine(path))
    if code != _OK:
        kind = "refused" if code == _NAMED else "died"
        return Outcome(f"trial {kind}", said, failed=code == _BUG)
    code, said = _forked(lambda: _use(path))
    if code == _OK:
        return Outcome("loaded", "")
    return Outcome("load", said, failed=code != _NAMED)


def _use(path: Path) -> None:
    options = LoadOptions(n_ctx=256, n_threads=1)
    with Session(path, path, options) as session:
        how = {"temperature": 0.0, "max_tokens": 6, "n_draft": 2}
        drafter = "model" if session.has_draft_model else "ngram"
        session.complete([1, 5, 9, 4], drafter=drafter, **how)
        session.complete([1, 5, 9, 4, 4], drafter="ngram", seed=3, **{**how, "temperature": 1.0})


def _forked(work: Callable[[], object]) -> tuple[int, str]:
    """Run it in a fork; its exit code (negative: a signal), and what it said last."""
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if pid == 0:
            _child(work, said.fileno())
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return code, said.read().decode("utf-8", "replace")[-2000:]


def _child(work: Callable[[], object], said: int) -> None:
    code = _BUG
    try:
        os.dup2(said, 1)
        os.dup2(said, 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(_SECONDS)
        work()
        code = _OK
    except LocalspecError as error:
        os.write(2, str(error).encode("utf-8", "replace"))
        code = _NAMED
    except BaseException:
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _short(words: str) -> str:
    """Numbers and paths taken out, so that like reasons count together."""
    found = re.findall(r"[\w.-]+:\d+: GGML_ASSERT.*|what\(\).*", words)
    line = found[-1] if found else (words.strip().splitlines() or [""])[-1]
    return re.sub(r"\S*/\S+", "…", re.sub(r"'[^']*'|\d[\d,.]*", "…", line))[:110]


def main(argv: list[str] | None = None) -> int:
    """0 when every file was loaded or named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one case, with its details")
    parser.add_argument("--verbose", action="store_true", help="the reasons, by number")
    args = parser.parse_args(argv)
    os.environ["GGML_NO_BACKTRACE"] = "1"
    vetting.probe = lambda path, size_bytes: None  # done here, in a fork
    started = time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="localspec-fuzz-") as folder:
        os.environ["LOCALSPEC_CACHE"] = folder
        files = [path.read_bytes() for path in bases(Path(folder))]
        path = Path(folder) / "case.gguf"
        for number in [args.only] if args.only is not None else range(args.n):
            data, done = case(files, args.seed, number)
            path.write_bytes(data)
            found = outcome(path)
            counts[found.stage] += 1
            reasons[f"{found.stage}: {_short(found.words)}"] += 1
            if found.failed or args.only is not None:
                print(f"seed {args.seed} case {number}: {'; '.join(done)}")
                print(f"  {found.stage}: {found.words}", flush=True)
            elif found.stage == "trial died" and args.verbose:
                print(f"case {number}: {'; '.join(done)}: {_short(found.words)}", flush=True)
            failures += found.failed
    for reason, n in reasons.most_common() if args.verbose else ():
        print(f"{n:6} {reason}")
    took = time.monotonic() - started
    print(f"{sum(counts.values())} files in {took:.0f} s, seed {args.seed}: {failures} failures")
    print(", ".join(f"{stage} {n}" for stage, n in counts.most_common()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
