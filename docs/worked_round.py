"""Write the worked round of docs/algorithm.md from an answer of the real default pair.

    python docs/worked_round.py [--target default] [--draft auto] [--threads N]

It replaces what stands between the two marks of the page, and nothing else.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

import localspec

PAGE = Path(__file__).with_name("algorithm.md")
BEGIN, END = "<!-- worked round: begin -->", "<!-- worked round: end -->"
QUESTION = "Name three rivers of Europe and say where each one ends."
OPTIONS = {
    "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
    "n_draft": 4, "verifier": "rejection", "max_tokens": 60,
}  # fmt: skip


def main() -> None:
    """Take the first answer with a round that tells the whole story, and write it down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="default")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    messages = [{"role": "user", "content": QUESTION}]
    with localspec.load(given.target, given.draft, n_threads=given.threads) as session:
        for seed in range(100):
            result = session.chat(messages, seed=seed, **OPTIONS)
            told = next((r for r in result.rounds if tells(r)), None)
            if told is not None:
                break
        else:
            raise SystemExit("no round with accepted, rejected and discarded tokens was found")
        names = session.target_path.name, session.draft_path.name if session.draft_path else ""
    text = words(told, result, names, seed)
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{after}", "utf-8")


def tells(round_: localspec.Round) -> bool:
    """Two accepted or more, one of them by luck (p < q), one rejected, one discarded."""
    verdicts = [token.verdict for token in round_.tokens]
    lucky = any(
        token.verdict == "accepted" and token.q is not None and token.p < token.q < 1.0
        for token in round_.tokens
    )
    return lucky and verdicts.count("accepted") >= 2 and "discarded" in verdicts


def words(
    round_: localspec.Round,
    result: localspec.Completion,
    names: tuple[str, str],
    seed: int,
) -> str:
    """The table and what it means."""
    before = result.rounds[: round_.index]
    so_far = "".join(r.text for r in before)
    lines = [
        f"Target {names[0]}, draft {names[1]}, seed {seed}. The question: *{QUESTION}* After "
        f"{round_.index} rounds the answer reads",
        "",
        "```",
        so_far.rstrip("\n"),
        "```",
        "",
        f"and round {round_.index + 1} drafts {round_.n_draft} tokens:",
        "",
        "| i | token | q | p | min(1, p/q) | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for i, token in enumerate(round_.tokens, 1):
        if token.source == "target":
            lines.append(f"| | {shown(token.text)} | | {token.p:.4f} | | **{token.verdict}** |")
            continue
        assert token.q is not None
        chance = min(1.0, token.p / token.q)
        ratio = f"{chance:.4f}" if token.verdict != "discarded" else "not verified"
        lines.append(
            f"| {i} | {shown(token.text)} | {token.q:.4f} | {token.p:.4f} | {ratio} | "
            f"{token.verdict} |"
        )
    refused = next(t for t in round_.tokens if t.verdict == "rejected")
    final = round_.tokens[-1]
    accepted = [t for t in round_.tokens if t.verdict == "accepted"]
    lines += [
        "",
        f"{len(accepted)} draft tokens were accepted. {shown(refused.text)} had "
        f"p = {refused.p:.4f} and q = {refused.q:.4f}: it would have been accepted with "
        f"probability {min(1.0, refused.p / (refused.q or 1.0)):.4f}, and it was rejected. "
        f"{shown(final.text)} took its place, drawn from norm(max(0, p − q)), where p has "
        f"{final.p:.4f} and q {final.q or 0.0:.4f}. The tokens behind it were never verified: "
        "their p is that of a text that was not written. So this one pass of the target gave "
        f"{round_.n_accepted + 1} tokens; it took {round_.verify_s * 1e3:.0f} ms, and the draft "
        f"{round_.draft_s * 1e3:.0f} ms (single figures, not a measurement of speed).",
        "",
    ]
    return "\n".join(_wrapped(line) for line in lines)


def _wrapped(line: str) -> str:
    """Prose of 100 columns; tables as they are."""
    return line if line.startswith("|") else textwrap.fill(line, 100)


def shown(text: str) -> str:
    """A token for a Markdown table."""
    return f"`{text!r}`".replace("|", "\\|")


if __name__ == "__main__":
    main()
