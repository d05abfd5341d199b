"""How often are guesses right? By kind of prompt, as a bar chart."""

import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import localspec

PROMPTS = {
    "code": ["Write quicksort in Python.", "Reverse a linked list in C."],
    "prose": ["Describe a storm at sea.", "Tell a short fable about a fox."],
}

parser = argparse.ArgumentParser()
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
parser.add_argument("--out", default="acceptance.png")
given = parser.parse_args()

rates = {}
with localspec.load(given.target, given.draft) as session:
    for kind, prompts in PROMPTS.items():
        accepted = judged = 0
        for prompt in prompts:
            asked = [{"role": "user", "content": prompt}]
            stats = session.chat(asked, max_tokens=64, temperature=0, n_draft=4).stats
            accepted += stats.draft_n_accepted
            judged += stats.draft_n_accepted + stats.draft_n_rejected
        rates[kind] = accepted / max(1, judged)
        print(f"{kind}: {accepted} of {judged} accepted")

plt.bar(list(rates), list(rates.values()))
plt.ylabel("acceptance rate")
plt.savefig(given.out)
