"""kuruma render: requests of every protocol, and what it took before there were any."""

import json

import support
from support import json_lines, ok

HI = {"messages": [{"role": "user", "content": "hi"}], "thinking": {"type": "disabled"}}
PROMPT = "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>"


def render(*lines, args=()):
    """Outputs for `lines`, which are objects or texts."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return json_lines(ok("render", *args, stdin="\n".join(texts) + "\n"))


def test_a_body_alone_is_a_chat_request():
    output, = render(HI)
    assert output["prompt"] == PROMPT
    assert output["ids"][0] == 0 and output["special_ranges"][0] == [0, 29]
    assert output["conversation"]["messages"] == HI["messages"]
    assert output["sampling"]["temperature"] == 1.0 and output["sampling"]["max_tokens"] is None


def test_every_protocol_gives_the_same_prompt():
    responses = {"input": "hi", "reasoning": {"effort": "none"}, "max_output_tokens": 5}
    messages = dict(HI, max_tokens=5)
    outputs = render({"protocol": "chat", "body": dict(HI, max_completion_tokens=5)},
                     {"protocol": "messages", "body": messages},
                     {"protocol": "messages", "body": json.dumps(messages)},
                     {"protocol": "responses", "body": responses})
    for output in outputs:
        assert output["prompt"] == PROMPT
        assert output["conversation"] == outputs[0]["conversation"]
        assert output["sampling"] == outputs[0]["sampling"]
        assert output["max_tokens"] == 5


def test_completions_may_hold_several_prompts():
    output, = render({"protocol": "completions", "body": {"prompt": ["a", "b"]}})
    assert [entry["prompt"] for entry in output["prompts"]] == ["a", "b"]
    assert output["prompts"][0]["max_tokens"] == 16
    output, = render({"protocol": "completions", "body": {"prompt": [5, 6]}})
    assert output["prompts"] == [{"prompt": None, "ids": [5, 6], "max_tokens": 16}]
    fill = {"prompt": "a", "suffix": "b"}
    output, = render({"protocol": "completions", "body": fill})
    assert output["prompts"][0]["prompt"] == (
        "<｜begin▁of▁sentence｜><｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>")


def test_failures_are_answered_in_their_line():
    outputs = render({"messages": [{"content": "x"}]},
                     {"protocol": "messages", "body": {"messages": []}},
                     {"protocol": "chat", "body": "{"},
                     {"protocol": "telegram", "body": {}},
                     HI)
    errors = [output["error"] for output in outputs[:4]]
    assert [error["status"] for error in errors] == [400] * 4
    assert errors[0]["message"] == "'messages[0].role' is required"
    assert errors[0]["body"]["error"]["param"] == "messages[0].role"
    assert errors[1]["body"]["type"] == "error"
    assert "JSON" in errors[2]["message"]
    assert "'protocol'" in errors[3]["message"]
    assert outputs[4]["prompt"] == PROMPT


def test_budgets_depend_on_the_window():
    prompt_tokens = len(render(HI)[0]["ids"])
    window = ["--context", str(prompt_tokens + 4)]
    assert render(HI, args=window)[0]["max_tokens"] == 4
    assert render(dict(HI, max_tokens=9), args=window)[0]["max_tokens"] == 4
    error = render(dict(HI, max_tokens=9), args=[*window, "--strict"])[0]["error"]
    assert error["body"]["error"]["code"] == "context_length_exceeded"
    error = render(HI, args=["--context", str(prompt_tokens)])[0]["error"]
    assert "maximum context length is" in error["message"]


def test_sampling_is_honoured_unless_told_otherwise():
    body = dict(HI, temperature=0.5, top_p=0.5)
    assert render(body)[0]["sampling"]["top_p"] == 0.5
    assert render(body, args=["--hosted-sampling"])[0]["sampling"]["top_p"] == 1.0


def test_bytes_that_are_no_utf8_are_refused():
    done = support.subprocess.run([support.BINARY, "render"], input=b'{"messages": "\xff"}\n',
                                  capture_output=True, timeout=120, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["error"]["status"] == 400
