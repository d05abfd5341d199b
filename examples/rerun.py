"""What a seed promises, and making an answer again, in this process or another."""

import argparse

import localspec

parser = argparse.ArgumentParser()
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
given = parser.parse_args()

with localspec.load(given.target, given.draft) as session:
    answer = session.complete("Once upon a time", max_tokens=24, seed=7, n_draft=3)
    print(f"{answer.text!r}\npromise: {answer.promise.kind}: {answer.promise.words}")
    recipe = answer.recipe.to_json()  # files, options, seed, prompt ids: one line of JSON

with localspec.load(given.target, given.draft) as another:
    again = another.rerun(recipe)
    print("the same ids:", again.token_ids == answer.token_ids)
