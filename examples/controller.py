"""A controller of your own: one more token after a round that was accepted whole, else half.

It sees finished rounds, and a confidence before each token: no controller can bend the law.
"""

import argparse

import localspec


class Additive:
    """n_draft grows by one, and is halved (as TCP's window is)."""

    def __init__(self) -> None:
        self.n_draft = 2

    def worth_reading(self, n_tokens: int, n_ahead: int) -> bool:
        return True

    def begin(self, depth: int, limit: int, *, may_trim: bool) -> "Steps":
        return Steps(min(self.n_draft, limit))

    def observe(self, round_: localspec.Round) -> None:
        whole = round_.n_draft and round_.n_accepted == round_.n_draft
        self.n_draft = min(16, self.n_draft + 1) if whole else max(1, self.n_draft // 2)


class Steps:
    """The pace of one round: n tokens, by the draft model where there is one."""

    def __init__(self, n: int) -> None:
        self.n = self.left = n

    def source(self, match_length: int, n_available: int, n_missing: "int | None") -> str:
        if n_missing is not None:
            return "model"
        return "ngram" if n_available else "none"

    def another(self) -> bool:
        return self.left > 0

    def take(self, confidence: float) -> bool:
        self.left -= 1
        return True

    def copy(self, match_length: int, n_available: int) -> int:
        n = min(self.left, n_available)
        self.left -= n
        return n

    def trim(self) -> int:
        return self.n - self.left

    def worth(self) -> tuple[float, ...]:
        return ()

    def decoded(self, n_tokens: int, depth: int, seconds: float) -> None:
        pass


parser = argparse.ArgumentParser()
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
given = parser.parse_args()

with localspec.load(given.target, given.draft) as session:
    result = session.complete(
        "def quicksort(xs):", max_tokens=64, temperature=0, drafter="model", controller=Additive
    )
    print(result.text)
    print("draft lengths:", [round_.n_draft for round_ in result.rounds])
