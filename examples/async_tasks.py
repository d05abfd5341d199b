"""asyncio: a stream, a time limit, and several questions at once (they are answered in turn)."""

import argparse
import asyncio

import localspec

parser = argparse.ArgumentParser()
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
given = parser.parse_args()


async def main() -> None:
    with localspec.load(given.target, given.draft) as session:
        async with session.astream("Once upon a time", max_tokens=24) as events:
            async for event in events:
                if isinstance(event, localspec.Round):
                    print(event.text, end="", flush=True)
        print()

        try:  # the decode stops with the task, in the middle of a native call
            await asyncio.wait_for(session.acomplete("Count to ten thousand: 1, 2,"), timeout=0.5)
        except asyncio.TimeoutError:
            print("half a second was not enough")

        prompts = ["The sea is", "The sky is", "The grass is"]
        answers = [session.acomplete(prompt, max_tokens=6, seed=1) for prompt in prompts]
        for prompt, answer in zip(prompts, await asyncio.gather(*answers), strict=True):
            print(prompt + answer.text.replace("\n", " "))


asyncio.run(main())
