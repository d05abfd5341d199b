"""Events as they come. Run: python examples/stream.py "def fib(n):" """

import argparse

import localspec

parser = argparse.ArgumentParser()
parser.add_argument("prompt", nargs="?", default="def fib(n):")
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
given = parser.parse_args()

with localspec.load(given.target, given.draft) as session:
    for event in session.stream(given.prompt, max_tokens=48, temperature=0, n_draft=4):
        if isinstance(event, localspec.Round):
            words = [f"{token.text!r} {token.verdict}" for token in event.tokens]
            print(f"round {event.index + 1}: {', '.join(words)}")
        elif isinstance(event, localspec.Finished):
            print(event.text)
            print(f"{event.stats.tokens_per_pass:.2f} tokens per pass, ended by {event.reason}")
