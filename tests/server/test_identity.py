"""The same request gives the same text, whatever it shares the server with and how it is asked."""

import pytest
from support import PATHS, at_once, bodies, dump, text_of, usage_of

QUESTION = "What is the capital of France? Tell me about it."
SAMPLING = {"greedy": {"temperature": 0},
            "seeded": {"temperature": 1.0, "top_p": 1.0, "seed": 20240607}}


def asked(protocol, sampling, text=QUESTION, think=False):
    return {**bodies(text, tokens=24, think=think)[protocol], **SAMPLING[sampling]}


def ask(server, protocol, body, stream):
    answer = server.ok(PATHS[protocol], {**body, "stream": stream})
    return text_of(protocol, answer.events if stream else answer.json)


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("think", [False, True])
def test_protocols_and_forms_agree(model, sampling, think):
    texts = {(protocol, stream): ask(model, protocol, asked(protocol, sampling, think=think),
                                     stream)
             for protocol in ("chat", "messages", "responses") for stream in (False, True)}
    assert len(set(texts.values())) == 1, texts
    assert any(texts["chat", False])


@pytest.mark.parametrize("sampling", SAMPLING)
def test_company_does_not_matter(model, sampling):
    alone = {protocol: ask(model, protocol, asked(protocol, sampling), False)
             for protocol in PATHS}
    assert len(set(alone.values())) == 2  # Completions continue another prompt

    def crowd(i):
        protocol, stream = list(PATHS)[i % 4], i % 8 < 4
        if i < 8:
            return ask(model, protocol, asked(protocol, sampling), stream) == alone[protocol]
        other = asked(protocol, "seeded", text=f"Number {i} asks. " * (i * 3))
        ask(model, protocol, {**other, "seed": i, "max_tokens": 20 + i}, stream)
        return True

    assert all(at_once(20, crowd))
    model.settle()


def test_seeds_matter(model):
    body = {**asked("chat", "seeded"), "temperature": 2.0}
    texts = {ask(model, "chat", {**body, "seed": seed}, False) for seed in range(4)}
    assert len(texts) > 1
    drawn = {k: v for k, v in body.items() if k != "seed"}
    assert len({ask(model, "chat", drawn, False) for _ in range(4)}) > 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("protocol", PATHS)
def test_a_drawn_seed_is_reported_and_gives_the_answer_again(model, protocol, stream):
    body = {**asked(protocol, "seeded"), "temperature": 1.5, "stream": stream}
    del body["seed"]
    answer = model.ok(PATHS[protocol], body)
    seed = int(answer.headers["x-kuruma-seed"])
    assert 0 <= seed < 2**53
    again = model.ok(PATHS[protocol], {**body, "seed": seed})
    assert "x-kuruma-seed" not in again.headers
    assert len({text_of(protocol, a.events if stream else a.json) for a in (answer, again)}) == 1


@pytest.mark.parametrize("protocol", PATHS)
def test_repeated_requests_find_the_cache(model, protocol):
    body = asked(protocol, "greedy", text=f"In {protocol}: " + "the cat sat on the mat. " * 60)
    first, second, third = [model.ok(PATHS[protocol], body).json for _ in range(3)]
    assert text_of(protocol, first) == text_of(protocol, second) == text_of(protocol, third)
    prompt, cached, tokens = usage_of(protocol, first)
    assert cached == 0 and prompt > 128 and tokens > 0
    for answer in (second, third):
        assert usage_of(protocol, answer)[0] == prompt and usage_of(protocol, answer)[2] == tokens
        assert 0 < usage_of(protocol, answer)[1] < prompt
        assert usage_of(protocol, answer)[1] % 128 == 0


def test_usage_of_streams(model):
    body = {**asked("chat", "greedy"), "stream": True}
    events = model.ok(PATHS["chat"], body).events
    assert all(event == "[DONE]" or event["choices"] for event in events)
    assert not any("usage" in event for event in events[:-1])
    events = model.ok(PATHS["chat"], {**body, "stream_options": {"include_usage": True}}).events
    whole = model.ok(PATHS["chat"], {**body, "stream": False}).json
    assert events[-1] == "[DONE]" and events[-2]["choices"] == []
    assert usage_of("chat", events[-2])[0::2] == usage_of("chat", whole)[0::2]
    assert all(event["usage"] is None for event in events[:-2])
    final = model.ok(PATHS["messages"], {**asked("messages", "greedy"), "stream": True}).events
    assert final[-2]["usage"]["output_tokens"] == usage_of("chat", whole)[2]
    final = model.ok(PATHS["responses"], {**asked("responses", "greedy"), "stream": True}).events
    assert usage_of("responses", final[-1]["response"])[2] == usage_of("chat", whole)[2]


def test_limits_end_answers(scripted):
    for protocol in PATHS:
        body = bodies("Write forever.", tokens=3)[protocol]
        answer = scripted.ok(PATHS[protocol], body).json
        assert usage_of(protocol, answer)[2] == 3
        reason = (answer["choices"][0]["finish_reason"] if "choices" in answer else
                  answer.get("stop_reason") or answer["incomplete_details"]["reason"])
        assert reason in ("length", "max_tokens", "max_output_tokens")


def test_several_choices(model):
    body = {**asked("chat", "seeded"), "n": 3, "temperature": 2.0}
    whole = model.ok(PATHS["chat"], body).json
    texts = [choice["message"]["content"] for choice in whole["choices"]]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert len(set(texts)) > 1
    streamed = ["", "", ""]
    for event in model.ok(PATHS["chat"], {**body, "stream": True}).events[:-1]:
        for choice in event["choices"]:
            streamed[choice["index"]] += choice["delta"].get("content", "")
    assert streamed == texts
    greedy = model.ok(PATHS["chat"], {**body, "temperature": 0}).json
    assert len({choice["message"]["content"] for choice in greedy["choices"]}) == 1


def test_several_prompts(model):
    prompts = ["Once upon", "The sun", "Two and"]
    together = model.ok(PATHS["completions"], {"prompt": prompts, "temperature": 0}).json
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
    for prompt, choice in zip(prompts, together["choices"]):
        alone = model.ok(PATHS["completions"], {"prompt": prompt, "temperature": 0}).json
        assert alone["choices"][0]["text"] == choice["text"]


def test_logprobs(model):
    body = {**asked("chat", "greedy"), "logprobs": True, "top_logprobs": 20}
    whole = model.ok(PATHS["chat"], body).json["choices"][0]["logprobs"]["content"]
    streamed = []
    for event in model.ok(PATHS["chat"], {**body, "stream": True}).events[:-1]:
        for choice in event["choices"]:
            streamed += (choice.get("logprobs") or {}).get("content") or []
    assert streamed == whole and whole
    for entry in whole:
        assert len(entry["top_logprobs"]) == 20
        assert entry["logprob"] == max(top["logprob"] for top in entry["top_logprobs"])
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"]


def test_the_window(model):
    window = model.ok("/v1/models").json["data"][0]["max_model_len"]
    tokens = model.ok("/tokenize", {"prompt": "a b c d " * 40}).json["tokens"]
    prompt = (tokens * window)[:window - 3]
    for asked_for in (100, None):
        body = {"prompt": prompt, "temperature": 0, "ignore_eos": True}
        if asked_for:
            body["max_tokens"] = asked_for
        answer = model.ok(PATHS["completions"], body).json
        assert usage_of("completions", answer)[::2] == (window - 3, 3)
    refused = model.post(PATHS["completions"], dump({"prompt": prompt + [0, 0, 0]}))
    assert refused.status == 400
    assert refused.json["error"]["code"] == "context_length_exceeded"
    assert f"maximum context length is {window} tokens" in refused.json["error"]["message"]
