"""A conversation: append the answer's message and go on."""

import argparse

import localspec

parser = argparse.ArgumentParser()
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
given = parser.parse_args()

messages = [{"role": "system", "content": "Answer in one sentence."}]
with localspec.load(given.target, given.draft) as session:
    for question in ("Which river runs through Rome?", "And through Paris?"):
        messages.append({"role": "user", "content": question})
        answer = session.chat(messages, max_tokens=40, temperature=0)
        messages.append(answer.message)
        print(f"{question}\n  {answer.text}")
        print(f"  {answer.stats.cache_n} of {answer.stats.cache_n + answer.stats.prompt_n} "
              "prompt tokens came from the cache")  # fmt: skip
