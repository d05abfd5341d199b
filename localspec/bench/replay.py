"""What another way of drafting would have made of a recorded answer.

The recorded text is replayed round by round on the recorded costs: any fixed K, the controller
itself, copies, and the clairvoyant oracle, which knows in advance how many guesses are right. For
a greedy answer the fixed lengths and the oracle are exact; the controller's guesses behind its
first wrong one are taken from the true text, where they only cost time. For a sampled answer each
guess is right with the probability Σ min(p, q) of its position: an estimate.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.bench.trace import Recording
from localspec.control.costs import Costs
from localspec.control.expected_value import ExpectedValueController, Experience
from localspec.decoding.controller import Controller, FixedController, Pace
from localspec.decoding.draft import Draft
from localspec.decoding.events import Round, RoundToken, Verdict
from localspec.drafting.copies import Copies, Running
from localspec.sampling.distribution import Distribution

__all__ = [
    "FIXED_LENGTHS",
    "Outcome",
    "oracle",
    "replay",
    "replay_adaptive",
    "replay_all",
    "replay_fixed",
]

FIXED_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
_N_SEEDS = 8  # replays of a sampled answer that an estimate averages
_LONGEST_GAP = 16  # tokens that the oracle's draft may lack; more is counted as this many


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tokens, seconds of decoding, target passes and drafted tokens of one replay."""

    n_tokens: int
    seconds: float
    n_passes: int
    n_drafted: int

    @property
    def tokens_per_s(self) -> float:
        """The speed that the recorded costs give."""
        return self.n_tokens / self.seconds if self.seconds else 0.0


def replay_all(recording: Recording, n_drafts: Sequence[int] = FIXED_LENGTHS) -> dict[str, Outcome]:
    """Every way of drafting, by name; plain first. A sampled answer has no oracle."""
    seeds = range(1 if recording.is_greedy else _N_SEEDS)
    found = {"plain": replay_fixed(recording, 0)}
    drafters = {"ngram": (False, True)}
    if recording.has_draft:
        for k in n_drafts:
            found[f"fixed {k}"] = _mean([replay_fixed(recording, k, seed=seed) for seed in seeds])
        drafters |= {"model": (True, False), "splice": (True, True)}
    for name, (use_model, use_copies) in drafters.items():
        found[f"controller, {name}"] = _mean(
            [
                replay_adaptive(recording, use_model=use_model, use_copies=use_copies, seed=seed)
                for seed in seeds
            ]
        )
    if recording.has_draft and recording.is_greedy:
        found["oracle, model"] = oracle(recording)
    return found


def replay_fixed(recording: Recording, n_draft: int, *, seed: int = 0) -> Outcome:
    """A fixed K by the draft model; 0 is plain decoding."""
    return replay(
        recording,
        lambda costs: FixedController(n_draft),
        use_model=n_draft > 0,
        use_copies=False,
        seed=seed,
    )


def replay_adaptive(
    recording: Recording,
    *,
    use_model: bool = True,
    use_copies: bool = True,
    seed: int = 0,
    experience: Experience | None = None,
) -> Outcome:
    """The controller, beginning without experience unless some is given, which then grows."""
    known = experience or Experience()
    return replay(
        recording,
        lambda costs: ExpectedValueController(costs, known),
        use_model=use_model,
        use_copies=use_copies,
        seed=seed,
    )


def replay(
    recording: Recording,
    controller: Callable[[Costs], Controller],
    *,
    use_model: bool,
    use_copies: bool,
    seed: int = 0,
) -> Outcome:
    """Replay one answer at a controller's pace."""
    costs = recording.costs()
    rule = controller(costs)
    model = _RecordedModel(recording, costs)
    copies = Copies() if use_copies else None
    if copies is not None:
        copies.prepare(recording.prompt_ids)
    model.n_read = len(recording.prompt_ids) - 1
    rng = random.Random(seed)
    n_total = len(recording.tokens)
    done, seconds, n_passes, n_drafted = 0, 0.0, 0, 0
    while done < n_total:
        ids = [*recording.prompt_ids, *recording.tokens[:done]]
        pace = rule.begin(len(ids), n_total - done - 1, may_trim=True)
        draft = Draft()
        model.seconds = 0.0
        match = copies.find(ids) if copies is not None else None
        n_available = copies.n_available(match) if copies is not None and match else 0
        missing = model.missing(len(ids)) if use_model else None
        source = pace.source(match.length if match else 0, n_available, missing)
        if source == "ngram" and copies is not None and match is not None:
            copies.splice(match, draft, pace, len(ids))
        elif source == "model":
            model.draft(ids, draft, pace, copies)
        draft.cut(pace.trim())
        accepted = _accepted(recording, draft, done, rng)
        k = len(draft.ids)
        verify_s = costs.target.seconds(k + 1, len(ids))
        n_new = min(accepted + 1, n_total - done)
        rule.observe(_round(recording, draft, accepted, done, model.seconds, verify_s, len(ids)))
        done += n_new
        model.n_read = min(model.n_read, len(ids) + accepted)
        seconds += model.seconds + verify_s
        n_passes += 1
        n_drafted += k
    return Outcome(n_total, seconds, n_passes, n_drafted)


def oracle(recording: Recording, n_draft_max: int = 16) -> Outcome:
    """The least time in which this draft model could have helped to write a greedy answer.

    Dynamic programme over answer tokens and the tokens that the draft lacks. A clairvoyant never
    drafts a wrong token, so that every draft is accepted whole.
    """
    costs = recording.costs()
    n = len(recording.tokens)
    depth = len(recording.prompt_ids) + n // 2
    verify = costs.target.row(depth, n_draft_max + 1)
    draft = costs.draft.row(depth, _LONGEST_GAP)
    runs = [recording.n_right_from(i) for i in range(n)]
    best = [[0.0] * (_LONGEST_GAP + 2) for _ in range(n + 1)]
    choice = [[0] * (_LONGEST_GAP + 2) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for lack in range(1, _LONGEST_GAP + 1):
            options = [(verify[1] + best[i + 1][min(lack + 1, _LONGEST_GAP)], 0)]
            for k in range(1, min(n_draft_max, runs[i], n - i - 1) + 1):
                cost = draft[lack] + (k - 1) * draft[1] + verify[k + 1]
                options.append((cost + best[i + k + 1][2], k))
            best[i][lack], choice[i][lack] = min(options)
    i, lack, n_passes, n_drafted = 0, 1, 0, 0
    while i < n:
        k = choice[i][lack]
        i, lack = i + k + 1, 2 if k else min(lack + 1, _LONGEST_GAP)
        n_passes += 1
        n_drafted += k
    return Outcome(n, best[0][1], n_passes, n_drafted)


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        outcomes[0].n_tokens,
        statistics.fmean(outcome.seconds for outcome in outcomes),
        round(statistics.fmean(outcome.n_passes for outcome in outcomes)),
        round(statistics.fmean(outcome.n_drafted for outcome in outcomes)),
    )


class _RecordedModel:
    """Stands in for a draft model: says what the real one said."""

    def __init__(self, recording: Recording, costs: Costs) -> None:
        self._recording, self._costs = recording, costs
        self.seconds = 0.0
        self.n_read = 0  # tokens of prompt and answer that the draft has decoded

    def missing(self, n_ids: int) -> int:
        return max(1, n_ids - self.n_read)

    def draft(self, ids: Sequence[int], draft: Draft, pace: Pace, copies: Copies | None) -> None:
        recording = self._recording
        start = len(ids) - len(recording.prompt_ids)
        running: Running | None = None
        while pace.another() and start + len(draft.ids) < len(recording.tokens):
            at = start + len(draft.ids)
            n = 1 if draft.ids else self.missing(len(ids))
            self.seconds += self._costs.draft.seconds(n, len(ids))
            self.n_read = len(ids) + len(draft.ids)
            if not pace.take(recording.confidence(at)):
                return
            token = recording.guess(at)
            draft.append(token, Distribution.one_hot(token), recording.confidence(at), "model")
            if copies is not None:
                running = copies.follow(running, token)
                if copies.splice(running.match, draft, pace, len(ids)):
                    return


def _accepted(recording: Recording, draft: Draft, done: int, rng: random.Random) -> int:
    for j, (token, source) in enumerate(zip(draft.ids, draft.sources, strict=True)):
        position = recording.positions[done + j]
        if source == "model" and not recording.is_greedy:
            right = rng.random() < recording.chance(done + j)
        elif recording.is_greedy:
            right = token == position.token
        else:
            right = rng.random() < position.p.prob(token)
        if not right:
            return j
    return len(draft.ids)


def _round(
    recording: Recording,
    draft: Draft,
    accepted: int,
    done: int,
    draft_s: float,
    verify_s: float,
    depth: int,
) -> Round:
    tokens = []
    for j, token in enumerate(draft.ids):
        verdict: Verdict = (
            "accepted" if j < accepted else "rejected" if j == accepted else "discarded"
        )
        position = recording.positions[done + j]
        chance = float(j < accepted)
        if not recording.is_greedy:
            is_copy = draft.sources[j] == "ngram"
            chance = position.p.prob(token) if is_copy else recording.chance(done + j)
        p_raw = position.p.prob(position.token)
        tokens.append(
            RoundToken(token, b"", draft.sources[j], verdict, chance, 1.0, p_raw, draft.q_raw[j])
        )
    at = done + accepted
    if at < len(recording.positions):
        last = recording.positions[at]
        verdict = "bonus" if accepted == len(draft.ids) else "correction"
        p_raw = last.p.prob(last.token)
        tokens.append(RoundToken(last.token, b"", "target", verdict, 1.0, None, p_raw, None))
    return Round(
        0,
        len(draft.ids),
        accepted,
        tuple(tokens),
        "",
        draft_s,
        verify_s,
        draft_s + verify_s,
        depth,
    )
