"""kuruma parse with the bundled model's tokenizer: its markers are those of the release."""

import json
import random

from support import json_lines, ok

TEXT = ('why not\n\n</think>\n\nso it is\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n'
        '<｜DSML｜ parameter name="a" string="true">x "y"</｜DSML｜ parameter>\n'
        '<｜DSML｜ parameter name="n" string="false">[1, 2]</｜DSML｜ parameter>\n'
        '</｜DSML｜ invoke>\n</｜DSML｜ calls>')
TOOL = {"name": "f", "parameters": {"type": "object"}}
REQUESTS = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}],
             "tools": [{"type": "function", "function": TOOL}]},
    "messages": {"tools": [{"name": "f", "input_schema": {"type": "object"}}], "max_tokens": 9},
    "responses": {"tools": [{"type": "function", **TOOL}]},
}
ARGUMENTS = '{"a": "x \\"y\\"", "n": [1, 2]}'
MERGED = {
    "chat": {"calls": [["f", ARGUMENTS]], "finish": "tool_calls"},
    "messages": {"calls": [["f", json.loads(ARGUMENTS)]], "finish": "tool_use",
                 "stop_sequence": None},
    "responses": {"calls": [["function_call", None, "f", ARGUMENTS]], "finish": "completed"},
}


def parse(*lines):
    return json_lines(ok("parse", stdin="\n".join(json.dumps(line) for line in lines) + "\n"))


def cut(text, rng):
    while text:
        length = rng.randint(1, 20)
        yield text[:length]
        text = text[length:]


def test_merged_does_not_depend_on_chunking():
    rng = random.Random(1)
    ids = json_lines(ok("tokenize", stdin=json.dumps({"text": TEXT}) + "\n"))[0]["ids"]
    for protocol, request in REQUESTS.items():
        inputs = [{"token_ids": ids}, {"chunks": [TEXT]}, {"chunks": list(TEXT)}]
        inputs += [{"chunks": list(cut(TEXT, rng))} for _ in range(5)]
        for answer in parse(*({"protocol": protocol, "request": request, **i} for i in inputs)):
            assert answer["merged"] == {"reasoning": "why not", "content": "so it is",
                                        **MERGED[protocol]}
            assert len(answer["events"]) > 5


def test_forms_of_the_protocols():
    chat, texts, message, response = parse(
        {"request": {"messages": [{"role": "user", "content": "Hi"}]}, "chunks": ["a</think>b"]},
        {"protocol": "completions", "request": {"prompt": "P", "echo": True, "stop": "b"},
         "chunks": ["\nab"]},
        {"protocol": "messages", "request": {"thinking": {"type": "disabled"},
                                             "stop_sequences": ["b"]}, "chunks": ["ab"]},
        {"protocol": "responses", "request": {"reasoning": {"effort": "none"}}, "chunks": ["ab"],
         "finish": "length"})
    assert chat["events"][-1] == "[DONE]"
    assert chat["final"]["object"] == "chat.completion"
    assert texts["merged"] == {"reasoning": None, "content": "P\na", "calls": [], "finish": "stop"}
    assert message["merged"]["stop_sequence"] == "b"
    assert message["final"]["usage"]["output_tokens"] == 1
    assert response["merged"]["finish"] == "incomplete:max_output_tokens"
    assert [e["sequence_number"] for e in response["events"]] == list(range(9))


def test_errors():
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    failed, *refused = parse(
        {"request": chat, "chunks": ["a"], "finish": "failed"},
        {"request": {"messages": []}, "chunks": []},
        {"request": chat},
        {"request": chat, "chunks": [], "token_ids": []},
        {"request": chat, "chunks": [1]},
        {"request": chat, "token_ids": [1 << 40]},
        {"request": chat, "token_ids": [0.5]},
        {"request": chat, "chunks": [], "finish": "never"},
        {"protocol": "soap", "request": {}, "chunks": []},
        {"protocol": "messages", "request": {"stop_sequences": [""]}, "chunks": []},
        [])
    assert failed["merged"] is None and failed["final"]["error"]["type"] == "server_error"
    assert failed["events"][-1]["error"]["message"]
    assert all(line["error"]["status"] == 400 for line in refused), refused
    assert "soap" in refused[7]["error"]["message"]
    out = ok("parse", stdin="{\n\n\xff\n")
    assert [line["error"]["status"] for line in json_lines(out)] == [400, 400]
