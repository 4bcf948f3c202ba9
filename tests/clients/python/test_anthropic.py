"""The official `anthropic` package."""

import asyncio

import anthropic
import pytest

WEATHER = {"name": "get_weather", "description": "The weather of a city",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"},
                                                             "days": {"type": "integer"}}}}
THINK = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture
def client(scripted):
    return anthropic.Anthropic(base_url=scripted.url, api_key="unused", max_retries=0)


def ask(client, text, **more):
    more = {"model": "claude", "max_tokens": 2000, "thinking": THINK, **more}
    return client.messages.create(messages=[{"role": "user", "content": text}], **more)


def test_create(client):
    message = ask(client, "Hi", system="Be kind.")
    assert message.type == "message" and message.role == "assistant"
    thinking, text = message.content
    assert thinking.type == "thinking" and thinking.thinking == "The user greets me."
    assert thinking.signature
    assert text.type == "text" and text.text == "Hello! How can I help?"
    assert message.stop_reason == "end_turn" and message.stop_sequence is None
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0


def test_path_below_anthropic(scripted):
    client = anthropic.Anthropic(base_url=scripted.url + "/anthropic", api_key="unused")
    assert ask(client, "Hi").content[-1].text == "Hello! How can I help?"


def test_stream(client):
    with client.messages.stream(model="claude", max_tokens=2000, thinking=THINK,
                                messages=[{"role": "user", "content": "Question U"}]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert {"thinking", "signature", "text"} <= set(kinds)
    assert final.content[0].thinking == "Kanji?" and final.content[0].signature
    assert final.content[1].text == "車は速い 🚗 – 100 km/h."
    assert final.stop_reason == "end_turn"
    assert final.usage.input_tokens > 0 and final.usage.output_tokens > 0


def test_raw_stream(client):
    events = list(ask(client, "Hi", stream=True))
    names = [type(event).__name__ for event in events]
    assert names[0] == "RawMessageStartEvent" and names[-1] == "RawMessageStopEvent"
    assert events[-2].type == "message_delta" and events[-2].delta.stop_reason == "end_turn"


def test_async_client(scripted):
    async def run():
        async with anthropic.AsyncAnthropic(base_url=scripted.url, api_key="x") as client:
            async with client.messages.stream(
                    model="claude", max_tokens=2000,
                    messages=[{"role": "user", "content": "Hi"}]) as stream:
                return "".join([text async for text in stream.text_stream])

    assert asyncio.run(run()).endswith("Hello! How can I help?")


def test_tool_loop(client):
    first = ask(client, "Question W", tools=[WEATHER])
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
    assert first.stop_reason == "tool_use"
    use = first.content[-1]
    assert use.name == "get_weather" and use.input == {"city": "Kyoto", "days": 2}
    second = client.messages.create(
        model="claude", max_tokens=2000, thinking=THINK, tools=[WEATHER],
        messages=[{"role": "user", "content": "Question W"},
                  {"role": "assistant", "content": first.content},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                                "content": "18 degrees"}]}])
    assert second.content[-1].text == "It is 18 degrees in Kyoto."


def test_tool_stream(client):
    with client.messages.stream(model="claude", max_tokens=2000, tools=[WEATHER],
                                thinking=THINK,
                                messages=[{"role": "user", "content": "Question 2"}]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert "input_json" in kinds
    uses = [block for block in final.content if block.type == "tool_use"]
    assert [use.input["city"] for use in uses] == ["Kyoto", "Oslo"]
    assert len({use.id for use in uses}) == 2 and final.stop_reason == "tool_use"


def test_stop_sequence(client):
    message = ask(client, "Question S", stop_sequences=["STOP"])
    assert message.content[-1].text == "One, two, "
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == "STOP"


def test_max_tokens(client):
    message = ask(client, "Question L", max_tokens=5)
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 5


def test_count_tokens(client):
    counted = client.messages.count_tokens(
        model="claude", system="Be kind.", thinking=THINK, tools=[WEATHER],
        messages=[{"role": "user", "content": "Question W"}])
    message = ask(client, "Question W", system="Be kind.", tools=[WEATHER])
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_bad_request(client):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(client, "Hi", extra_body={"temperature": -1})
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert "temperature" in caught.value.body["error"]["message"]


def test_unknown_model(client):
    with pytest.raises(anthropic.NotFoundError) as caught:
        ask(client, "Hi", model="gpt-5")
    assert caught.value.body["error"]["type"] == "not_found_error"


def test_failures(client):
    with pytest.raises(anthropic.InternalServerError) as caught:
        ask(client, "Question F")
    assert caught.value.body["error"]["type"] == "api_error"
    with pytest.raises(anthropic.APIStatusError) as caught:
        list(ask(client, "Question E", stream=True))
    assert "the script broke" in str(caught.value)


def test_models(client):
    assert [m.id for m in client.models.list()] == ["scripted"]
    assert client.models.retrieve("scripted").id == "scripted"
