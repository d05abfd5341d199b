"""A drafter of your own: what followed the last two tokens in texts that you know.

The text stays the model's own, whatever it guesses: a wrong guess costs time, nothing else.
"""

import argparse
from collections.abc import Sequence

import localspec

KNOWN = "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\n"


class PhraseTable:
    """Made with the target's vocabulary; `guess` is all that a drafter needs."""

    def __init__(self, vocabulary: localspec.Vocabulary) -> None:
        ids = vocabulary.tokenize(KNOWN, add_bos=False)
        self.following = {(ids[i], ids[i + 1]): ids[i + 2 : i + 10] for i in range(len(ids) - 2)}

    def guess(self, ids: Sequence[int], n_max: int) -> Sequence[int]:
        return self.following.get(tuple(ids[-2:]), ())


parser = argparse.ArgumentParser()
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
given = parser.parse_args()

with localspec.load(given.target, draft=None, drafter=PhraseTable) as session:
    prompt = "# Fibonacci numbers\ndef fib(n):"
    ours = session.complete(prompt, max_tokens=48, temperature=0, n_draft=8)
    plain = session.complete(prompt, max_tokens=48, temperature=0, drafter="none")
    print(ours.text)
    print(f"{ours.stats.draft_n_accepted} guesses of {ours.stats.drafter} were right; "
          f"{ours.stats.n_passes} passes instead of {plain.stats.n_passes}")  # fmt: skip
