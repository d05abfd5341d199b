"""A tool that the model may call, for models whose template knows tools (Qwen2.5, Hermes)."""

import argparse
import json

import localspec

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}

parser = argparse.ArgumentParser()
parser.add_argument("--target", default="default")
parser.add_argument("--draft", default="auto")
given = parser.parse_args()

messages = [{"role": "user", "content": "What is the weather in Rome? Use the tool."}]
with localspec.load(given.target, given.draft) as session:
    try:
        answer = session.chat(messages, tools=[WEATHER], max_tokens=80, temperature=0)
    except localspec.ChatTemplateError as error:
        raise SystemExit(f"no tools here: {error}") from None
    print(answer.tool_calls or answer.text)
    messages.append(answer.message)
    for call in answer.tool_calls:
        result = json.dumps({"city": call.arguments.get("city"), "sky": "clear", "celsius": 21})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    if answer.tool_calls:
        print(session.chat(messages, tools=[WEATHER], max_tokens=80, temperature=0).text)
