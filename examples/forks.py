"""Many continuations of one text: what they share is evaluated once, and can be kept on disk."""

import argparse
from pathlib import Path

import localspec

parser = argparse.ArgumentParser()
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
parser.add_argument("--state", type=Path, default=Path("fable.state"))
given = parser.parse_args()

with localspec.load(given.target, given.draft) as session:
    trunk = session.branch("A fable. The fox saw the grapes, and")
    for seed in range(3):
        branch = trunk.fork()
        result = branch.complete(max_tokens=16, temperature=1.0, seed=seed)
        print(f"{seed}: …{result.text!r} ({result.stats.cache_n} tokens were evaluated before)")

    session.save_state(given.state)
    session.clear_cache()
    ids = session.restore_state(given.state)
    print(f"{given.state}: {len(ids)} tokens, {given.state.stat().st_size:,} bytes")
    again = session.complete(list(trunk.ids), max_tokens=16, temperature=1.0, seed=0)
    print(f"0: …{again.text!r} once more")
