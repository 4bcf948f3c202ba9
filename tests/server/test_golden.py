"""The recorded answers and requests of tests/golden/frontend through HTTP.

`kuruma parse` and `kuruma render` say what is expected; tests of src/api compare those with the
recordings.
"""

import json
import re

import pytest
from support import (GOLDEN, PATHS, TOKENIZER, Server, at_once, json_lines, run, usage_of,
                     write_script)

END = 1  # the end of sentence of the release
TOOL = {"name": "f", "description": "A tool.", "parameters": {"type": "object", "properties": {}}}
TOOLS = {"chat": [{"type": "function", "function": TOOL}],
         "messages": [{"name": "f", "input_schema": TOOL["parameters"]}],
         "responses": [{"type": "function", **TOOL}]}
WINDOW = 1 << 20
# What the service's own library takes, and this server does not yet.
NOT_YET = re.compile("not supported by this server yet")


def rows(name):
    return json_lines((GOLDEN / name).read_text())


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A folder with the released tokenizer, as --model takes it."""
    assert TOKENIZER.exists(), "make data"
    folder = tmp_path_factory.mktemp("model")
    (folder / "tokenizer.json").symlink_to(TOKENIZER)
    return folder


# ------------------------------------------------------------------------------------- answers

def request_of(row, settings):
    """A body whose answer is read as the row's setting says; its text is the row's own."""
    setting = settings[row["protocol"]][row["setting"]]
    user = [{"role": "user", "content": f"Question {row['id']}."}]
    body = {}
    if row["protocol"] == "responses":
        body["input"] = user
        body["reasoning"] = {"effort": "high" if setting["thinking"] else "none"}
    else:
        body["messages"] = user
        body["thinking"] = {"type": "enabled" if setting["thinking"] else "disabled"}
    if setting.get("tools"):
        body["tools"] = list(TOOLS[row["protocol"]])
        if row["setting"] == "special_tools":
            body["tools"].append({"type": "custom", "name": "apply_patch"})
    if "stops" in setting:
        body["stop_sequences" if row["protocol"] == "messages" else "stop"] = setting["stops"]
    if "prefix" in setting:
        body["messages"].append({"role": "assistant", "prefix": True,
                                 "content": setting["prefix"]["content"],
                                 "reasoning_content": setting["prefix"]["reasoning"]})
    if row["setting"] == "usage":
        body["stream_options"] = {"include_usage": True}
    limit = "max_output_tokens" if row["protocol"] == "responses" else "max_tokens"
    if row["finish"] == "length":
        body[limit] = len(tokens_of(row))
    elif row["protocol"] == "messages":
        body[limit] = 4000
    if "stream_options" in body:
        body["stream"] = True
    return body


def tokens_of(row):
    """Ids of the run that was fed token by token, up to an end; of an empty answer none."""
    ids = next((r["token_ids"] for r in row["runs"] if r["chunking"] == "tokens"), [])
    return ids[:ids.index(END)] if END in ids else ids


VOLATILE = {"id", "created", "created_at", "call_id", "item_id", "signature", "encrypted_content",
            "model", "usage", "system_fingerprint"}


# What a response repeats of its request, with the server's defaults; test_echo looks at it.
ECHO = {"instructions", "max_output_tokens", "temperature", "top_p", "top_logprobs", "tools",
        "parallel_tool_calls", "tool_choice", "text", "reasoning", "metadata", "truncation",
        "previous_response_id"}


def plain(value):
    """Without ids, times, counts and echoes."""
    if isinstance(value, dict):
        if value.get("object") == "response":
            value = {k: v for k, v in value.items() if k not in ECHO}
        return {k: plain(v) if k not in VOLATILE else type(v).__name__ for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def streamed(body):
    return {**body, "stream": True}


def whole(body):
    return {k: v for k, v in body.items() if k not in ("stream", "stream_options")}


@pytest.fixture(scope="module")
def answers(tokenizer):
    settings = json.loads((GOLDEN / "stream_settings.json").read_text())
    # Without those that end as no engine here does.
    found = [row for row in rows("stream_cases.jsonl")
             if not settings[row["protocol"]][row["setting"]].get("required")
             and (row["finish"] in ("stop", "none") or row["finish"] == "length" and tokens_of(row))]
    return [(row, request_of(row, settings)) for row in found]


def parsed(answers, body_of):
    """What `kuruma parse` makes of the rows as answers to body_of(body)."""
    lines = [json.dumps({"protocol": row["protocol"], "request": body_of(body),
                         "token_ids": tokens_of(row), "finish": row["finish"]})
             for row, body in answers]
    done = run("parse", "--tokenizer", TOKENIZER, stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    results = json_lines(done.stdout)
    assert [(row["id"], r) for (row, _), r in zip(answers, results) if "error" in r] == []
    return results


def test_answers(tokenizer, answers, tmp_path):
    assert len(answers) > 230
    script = [{"match": f"Question {row['id']}.", "tokens": tokens_of(row)} for row, _ in answers]
    streams, wholes = parsed(answers, streamed), parsed(answers, whole)

    def ask(i):
        """Streamed and whole answers of every eighth row."""
        connection = server.connection()
        for index in range(i, len(answers), 8):
            row, body = answers[index]
            path = PATHS[row["protocol"]]
            stream = server.ok(path, streamed(body), connection=connection)
            assert plain(stream.events) == plain(streams[index]["events"]), row["id"]
            answer = server.ok(path, whole(body), connection=connection).json
            assert plain(answer) == plain(wholes[index]["final"]), row["id"]
            check_usage(row, answer, wholes[index]["final"])
        connection.close()

    with Server("--scripted", write_script(tmp_path, *script), "--model", tokenizer) as server:
        at_once(8, ask)
        server.settle()


def test_echo(scripted):
    body = {"input": "Hi", "instructions": "Be brief.", "max_output_tokens": 9, "temperature": 0.5,
            "top_p": 0.25, "parallel_tool_calls": False, "tools": TOOLS["responses"],
            "tool_choice": "auto", "metadata": {"k": "v"}}
    answer = scripted.ok(PATHS["responses"], body).json
    assert {k: answer[k] for k in body if k not in ("input", "tools")} == {
        k: v for k, v in body.items() if k not in ("input", "tools")}
    assert [tool["name"] for tool in answer["tools"]] == ["f"]
    assert answer["previous_response_id"] is None
    assert ECHO <= set(answer)


def check_usage(row, answer, expected):
    """The engine's end of sentence is a token of the answer; the recording has none."""
    count, without_end = usage_of(row["protocol"], answer)[2], usage_of(row["protocol"],
                                                                        expected)[2]
    if row["finish"] == "length" and tokens_of(row):
        assert count == without_end, row["id"]
    else:
        assert count in (without_end, without_end + 1), row["id"]


# ------------------------------------------------------------------------------------ requests

@pytest.mark.parametrize("thinking", [True, False])
def test_requests(tokenizer, tmp_path, thinking):
    """Refusals are those of `kuruma render`; prompts of the others have as many tokens."""
    cases = [row for row in rows("request_cases.jsonl")
             if row.get("options", {}).get("default_thinking_mode", True) == thinking]
    flags = [] if thinking else ["--no-thinking"]
    lines = [json.dumps({"protocol": row["protocol"], "body": row["body"]}) for row in cases]
    done = run("render", "--tokenizer", TOKENIZER, *flags, stdin="\n".join(lines) + "\n")
    rendered = json_lines(done.stdout)
    assert len(rendered) == len(cases) > 15
    seen = {"refused": 0, "answered": 0, "not yet": 0}

    def ask(i):
        for row, expected in list(zip(cases, rendered))[i::4]:
            answer = server.post(PATHS[row["protocol"]], row["body"].encode())
            seen[compare(row, expected, answer)] += 1

    script = write_script(tmp_path, {"text": "Fine."})
    with Server("--scripted", script, "--model", tokenizer, "--model-alias", "DeepSeek-V4.1-Flash",
                "--thinking", str(thinking).lower()) as server:
        at_once(4, ask)
        server.settle()
    print(seen)
    assert seen["answered"] > seen["not yet"], seen


def compare(row, expected, answer):
    if "error" in expected:
        assert answer.status == expected["error"]["status"], (row["id"], answer.body)
        assert answer.json == expected["error"]["body"], row["id"]
        return "refused"
    if answer.status == 400 and NOT_YET.search(answer.json["error"]["message"]):
        return "not yet"
    assert answer.status == 200, (row["id"], answer.body)
    if answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.events, row["id"]
    else:
        assert usage_of(row["protocol"], answer.json)[0] == len(expected["ids"]), row["id"]
    return "answered"
