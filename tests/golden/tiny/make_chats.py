#!/usr/bin/env python3
"""Rewrites chats.jsonl: the greedy answers of the bundled model to ten conversations.

    tests/golden/tiny/make_chats.py build/release/kuruma

Run it after training the model anew and read the difference: these are what users will see.
"""

import json
import pathlib
import subprocess
import sys

FILE = pathlib.Path(__file__).with_name("chats.jsonl")
TOOLS = json.loads((pathlib.Path(__file__).parents[3] / "docs/examples/tools.json").read_text())


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


CALL = {"id": "call_1", "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "city": {"type": "string"}},
          "required": ["name", "city"]}
CHATS = {
    "server": {"messages": [user("How do I start the server?")]},
    "inspect": {"messages": [user("What does inspect do?")]},
    "second turn": {"messages": [user("Hello"), assistant("Hello! How can I help you?"),
                                 user("What is Engram?")]},
    "system message": {"messages": [{"role": "system", "content": "Be brief."},
                                    user("How can I evaluate a model?")]},
    "thinking": {"messages": [user("Add 24 and 51.")], "thinking": {"type": "enabled"}},
    "sort": {"messages": [user("Sort: 95 83 23")]},
    "json": {"messages": [user("Fill the schema from this text: In Rome lives Nina, aged 31.")],
             "response_format": {"type": "json_schema",
                                 "json_schema": {"name": "person", "schema": SCHEMA}}},
    "tool call": {"messages": [user("How is the weather in Oslo now?")], "tools": TOOLS},
    "tool result": {"messages": [user("How is the weather in Oslo now?"),
                                 assistant("", tool_calls=[CALL]),
                                 {"role": "tool", "tool_call_id": "call_1",
                                  "content": "{\"degrees\": -3, \"sky\": \"cloudy\"}"}], "tools": TOOLS},
    "japanese": {"messages": [user("こんにちは")]},
}


def main():
    lines = []
    for name, body in CHATS.items():
        body = {"thinking": {"type": "disabled"}, **body}
        done = subprocess.run([sys.argv[1], "generate", "--messages", "-", "--temperature", "0",
                               "--json", "--quiet"], input=json.dumps(body), text=True,
                              capture_output=True, check=True)
        answer = json.loads(done.stdout)
        lines.append({"id": name, "body": body, "ids": answer["ids"], "text": answer["text"]})
        print(f"{name}: {answer['text']!r}")
    FILE.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines),
                    encoding="utf-8")


if __name__ == "__main__":
    main()
