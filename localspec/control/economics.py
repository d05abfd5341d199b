"""Whether drafting can pay on this machine, in numbers and in words.

Uses measured costs only; what was not measured is not said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localspec.control.costs import Costs, Undo

__all__ = ["COPIES_ALONE", "Outlook", "best_speed_up", "expected_tokens", "look"]

COPIES_ALONE = "the draft model rests"  # begins a note, and copies of the text are drafted alone
_WORTHWHILE = 1.05  # with every draft token accepted, which none reaches
_USUAL_ALPHA = 0.8


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a draft model can do here.

    best_ratio: speed over plain if every draft token were accepted, with best_n_draft a round.
    break_even: the acceptance rate from which drafting pays, None when none does. words: one
    clause for everybody; details: the same with the numbers behind it.
    """

    pays: bool
    best_ratio: float
    best_n_draft: int
    break_even: float | None
    words: str
    details: str


def expected_tokens(alpha: float, n_draft: int) -> float:
    """Tokens of one round when each draft token is accepted with probability alpha: Σ_{i≤K} α^i."""
    return sum(alpha**i for i in range(n_draft + 1))


def best_speed_up(costs: Costs, alpha: float, *, depth: int = 0, n_draft_max: int = 16) -> float:
    """Speed over plain of the best fixed draft length at this acceptance rate, 1 at least."""
    verify = costs.verify_row(depth, n_draft_max + 1)
    return max(1.0, _best(verify, costs.draft.row(depth, 2), alpha, costs.undo)[0])


def look(
    costs: Costs, *, depth: int = 0, n_draft_max: int = 16, device: str = "machine"
) -> Outlook:
    """Judge the draft model by the tables. They hold T(1) and D(1) at least.

    device: what the target runs on, for the words.
    """
    verify = costs.verify_row(depth, n_draft_max + 1)
    draft = costs.draft.row(depth, 2)

    def best(alpha: float) -> tuple[float, int]:
        return _best(verify, draft, alpha, costs.undo)

    best_ratio, best_k = best(1.0)
    usual, usual_k = best(_USUAL_ALPHA)
    numbers = _numbers(costs, depth, draft[1], verify, best_k)
    if best_ratio >= _WORTHWHILE:
        break_even = _root(lambda alpha: best(alpha)[0] - 1.0)
        words = f"the draft model pays from an acceptance rate of {break_even:.0%} on"
        details = (
            f"{words}; at {_USUAL_ALPHA:.0%} the best draft length is {usual_k} ({usual:.2f} times "
            f"plain speed), with all accepted {best_k} ({best_ratio:.2f}; {numbers})"
        )
        return Outlook(True, best_ratio, best_k, break_even, words, details)
    needed = max(
        (
            expected_tokens(_USUAL_ALPHA, k) * verify[1]
            - verify[k + 1]
            - _undo(costs.undo, verify, _USUAL_ALPHA, k)
        )
        / k
        for k in range(1, n_draft_max + 1)
    )
    why = (
        f"a batch of {usual_k + 1} tokens costs {verify[usual_k + 1] / verify[1]:.1f} single steps"
    )
    remedy = "another quant of the target may verify cheaper"
    if needed > 0.0:
        why += f" and drafting {usual_k} costs {draft[1] * usual_k / verify[1]:.1f} more"
        remedy = "a smaller draft model or quant may pay"
    details = (
        f"a draft model {'cannot' if best_ratio <= 1.0 else 'can hardly'} pay here: even if every "
        f"draft token were accepted, {best_k} a round would run at {best_ratio:.2f} times plain "
        f"speed ({numbers}). {_remedy(needed)}"
    )
    return Outlook(False, best_ratio, best_k, None, f"on this {device} {why}; {remedy}", details)


def _best(
    verify: list[float], draft: list[float], alpha: float, undo: Undo | None
) -> tuple[float, int]:
    """(speed over plain, K) of the best fixed K; verify and draft are T(0 …) and D(0 …)."""

    def ratio(k: int) -> float:
        first = draft[1] + alpha**k * (draft[2] - draft[1])  # two tokens after full acceptance
        seconds = first + (k - 1) * draft[1] + verify[k + 1] + _undo(undo, verify, alpha, k)
        return expected_tokens(alpha, k) * verify[1] / seconds

    return max((ratio(k), k) for k in range(1, len(verify) - 1))


def _undo(undo: Undo | None, verify: list[float], alpha: float, k: int) -> float:
    """Seconds that refusals cost a draft of k tokens; 0 where the memory can be cut."""
    return undo.seconds(alpha**k, expected_tokens(alpha, k), verify) if undo else 0.0


def _numbers(costs: Costs, depth: int, step: float, verify: list[float], k: int) -> str:
    measured = costs.target.is_measured(k + 1, depth)
    return (
        f"a target step takes {_ms(verify[1])}, a batch of {k + 1} tokens {_ms(verify[k + 1])}"
        f"{'' if measured else ' by interpolation'}, a draft step {_ms(step)}"
    )


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2g} ms"


def _remedy(needed: float) -> str:
    copies = "copies of the text cost no draft time"
    if needed <= 0.0:
        return (
            f"At an acceptance rate of {_USUAL_ALPHA:.0%} not even a free draft model would pay "
            "with this target, because its batches cost too much. Another quant of the target may "
            f"verify cheaper (see `localspec quantize`), and {copies}"
        )
    return (
        f"At an acceptance rate of {_USUAL_ALPHA:.0%} a draft step of {_ms(needed)} or less would "
        f"pay: try a smaller draft model or quant; {copies}"
    )


def _root(gain: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if gain(middle) >= 0.0 else (middle, high)
    return high
