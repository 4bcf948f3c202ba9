"""The official `openai` package: chat, completions, models."""

import asyncio
import json

import openai
import pytest

WEATHER = {"type": "function",
           "function": {"name": "get_weather", "description": "The weather of a city",
                        "parameters": {"type": "object",
                                       "properties": {"city": {"type": "string"},
                                                      "days": {"type": "integer"}},
                                       "required": ["city"]}}}


@pytest.fixture
def client(scripted):
    return openai.OpenAI(base_url=scripted.url + "/v1", api_key="unused", max_retries=0)


@pytest.fixture
def model(bundled):
    return openai.OpenAI(base_url=bundled.url + "/v1", api_key="unused", max_retries=0)


def user(text):
    return [{"role": "user", "content": text}]


def test_chat(client):
    answer = client.chat.completions.create(model="scripted", messages=user("Hi"))
    choice, = answer.choices
    assert answer.object == "chat.completion" and answer.model == "scripted"
    assert choice.message.content == "Hello! How can I help?"
    assert choice.message.reasoning_content == "The user greets me."
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "stop"
    usage = answer.usage
    assert usage.prompt_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens


def test_content_of_parts_and_a_system_prompt(client):
    messages = [{"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "Question "},
                                             {"type": "text", "text": "U"}]}]
    answer = client.chat.completions.create(model="deepseek-chat", messages=messages)
    assert answer.choices[0].message.content in ("車は速い 🚗 – 100 km/h.", "Hello! How can I help?")


def test_stream(client):
    stream = client.chat.completions.create(model="scripted", messages=user("Question U"),
                                            stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    *parts, last = chunks
    assert last.choices == [] and last.usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in parts)
    deltas = [chunk.choices[0].delta for chunk in parts]
    assert deltas[0].role == "assistant"
    assert "".join(d.content or "" for d in deltas) == "車は速い 🚗 – 100 km/h."
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "Kanji?"
    ends = [chunk.choices[0].finish_reason for chunk in parts]
    assert ends[-1] == "stop" and not any(ends[:-1])


def test_stream_without_usage_ends_with_the_choice(client):
    chunks = list(client.chat.completions.create(model="scripted", messages=user("Hi"),
                                                 stream=True))
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)


def test_async_client(scripted):
    async def ask():
        async with openai.AsyncOpenAI(base_url=scripted.url + "/v1", api_key="x") as client:
            text = ""
            async for chunk in await client.chat.completions.create(
                    model="scripted", messages=user("Hi"), stream=True):
                text += chunk.choices[0].delta.content or ""
            answers = await asyncio.gather(*[
                client.chat.completions.create(model="scripted", messages=user(f"Hi {i}"))
                for i in range(8)])
            return text, {a.choices[0].message.content for a in answers}

    assert asyncio.run(ask()) == ("Hello! How can I help?", {"Hello! How can I help?"})


def test_tool_loop(client):
    messages = user("Question W: how is the weather in Kyoto?")
    first = client.chat.completions.create(model="scripted", messages=messages, tools=[WEATHER])
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look."
    call, = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Kyoto", "days": 2}
    messages += [choice.message,
                 {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}]
    second = client.chat.completions.create(model="scripted", messages=messages, tools=[WEATHER])
    assert second.choices[0].message.content == "It is 18 degrees in Kyoto."
    assert second.choices[0].finish_reason == "stop"


def test_tool_loop_streamed(client):
    with client.chat.completions.stream(model="scripted", messages=user("Question W"),
                                        tools=[WEATHER]) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_completion().choices[0].message
    assert "tool_calls.function.arguments.delta" in kinds
    assert kinds.count("tool_calls.function.arguments.done") == 1
    call, = message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Kyoto", "days": 2}
    assert message.content == "Let me look."


def test_two_calls_streamed(client):
    names, arguments, ids = {}, {}, {}
    for chunk in client.chat.completions.create(model="scripted", messages=user("Question 2"),
                                                tools=[WEATHER], stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            if call.id:
                ids[call.index] = call.id
            if call.function.name:
                names[call.index] = call.function.name
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert names == {0: "get_weather", 1: "get_weather"} and len(set(ids.values())) == 2
    assert [json.loads(arguments[i])["city"] for i in (0, 1)] == ["Kyoto", "Oslo"]


def test_no_parallel_calls(client):
    answer = client.chat.completions.create(model="scripted", messages=user("Question 2"),
                                            tools=[WEATHER], parallel_tool_calls=False)
    assert len(answer.choices[0].message.tool_calls) == 1


def test_stop(client):
    answer = client.chat.completions.create(model="scripted", messages=user("Question S"),
                                            stop=["STOP", "never"])
    assert answer.choices[0].message.content == "One, two, "
    assert answer.choices[0].finish_reason == "stop"


def test_max_tokens(client):
    answer = client.chat.completions.create(model="scripted", messages=user("Question L"),
                                            max_completion_tokens=7)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 7


def test_n(model):
    answer = model.chat.completions.create(model="tiny", messages=user("Hello"), n=3,
                                           temperature=2, seed=7, max_tokens=12)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_n_streamed(model):
    texts = {}
    for chunk in model.chat.completions.create(model="tiny", messages=user("Hello"), n=2,
                                               temperature=1, seed=7, max_tokens=8, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    whole = model.chat.completions.create(model="tiny", messages=user("Hello"), n=2,
                                          temperature=1, seed=7, max_tokens=8)
    assert texts == {c.index: c.message.content for c in whole.choices}


def test_seed(model):
    def ask(seed):  # a prompt it was not trained for
        return model.completions.create(model="tiny", prompt="qx 7", temperature=2, seed=seed,
                                        max_tokens=24).choices[0].text
    assert ask(1) == ask(1)
    assert len({ask(seed) for seed in (1, 2, 3, 4)}) > 1


def test_logprobs(model):
    answer = model.chat.completions.create(model="tiny", messages=user("Hello"), temperature=0,
                                           logprobs=True, top_logprobs=3, max_tokens=6)
    choice = answer.choices[0]
    listed = choice.logprobs.content
    assert "".join(entry.token for entry in listed) == choice.message.content
    for entry in listed:
        assert bytes(entry.bytes).decode() == entry.token
        values = [top.logprob for top in entry.top_logprobs]
        assert len(values) == 3 and values == sorted(values, reverse=True)
        assert entry.top_logprobs[0].token == entry.token  # greedy
        assert entry.logprob == values[0] <= 0


def test_logprobs_streamed(model):
    text, listed = "", []
    for chunk in model.chat.completions.create(model="tiny", messages=user("Hello"),
                                               temperature=0, logprobs=True, top_logprobs=1,
                                               max_tokens=6, stream=True):
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        if choice.logprobs:
            listed += choice.logprobs.content
    assert text == "".join(entry.token for entry in listed) != ""


def test_completions(client):
    answer = client.completions.create(model="scripted", prompt=["Question P", "Question P"])
    assert answer.object == "text_completion"
    assert [c.text for c in answer.choices] == [" and so on."] * 2
    assert [c.finish_reason for c in answer.choices] == ["stop"] * 2
    echoed = client.completions.create(model="scripted", prompt="Question P", echo=True)
    assert echoed.choices[0].text == "Question P and so on."


def test_completions_streamed(client):
    chunks = list(client.completions.create(model="scripted", prompt="Question P", stream=True,
                                            stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == " and so on."
    assert chunks[-1].usage.completion_tokens > 0


def test_completions_logprobs(model):
    choice = model.completions.create(model="tiny", prompt="Kuruma is", temperature=0,
                                      max_tokens=5, logprobs=2).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text
    assert len(choice.logprobs.token_logprobs) == len(choice.logprobs.top_logprobs)
    assert choice.logprobs.text_offset[0] == 0


def test_models(client):
    listed = client.models.list().data
    assert [m.id for m in listed] == ["scripted"]
    assert client.models.retrieve("scripted").object == "model"
    assert client.models.retrieve("deepseek-chat").id == "deepseek-chat"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-5")
    assert caught.value.code == "model_not_found"
