"""Many prompts into a file. Stop it, start it again: it goes on where it was."""

import argparse

import localspec

parser = argparse.ArgumentParser()
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
parser.add_argument("--out", default="results.jsonl")
given = parser.parse_args()

prompts = [
    {"id": f"square of {n}", "messages": [{"role": "user", "content": f"What is {n} times {n}?"}]}
    for n in range(2, 8)
]
prompts.append({"id": "nothing", "prompt": ""})  # its error is recorded, and the others go on

with localspec.load(given.target, given.draft) as session:
    results = session.complete_many(
        prompts, out=given.out, progress=True, seed=1, max_tokens=24, temperature=0.7
    )
for result in results:
    print(f"{result.id}: {result.text.strip()[:60] if result.ok else result.message}")
