"""The official `openai` package: Responses."""

import json

import openai
import pytest

WEATHER = {"type": "function", "name": "get_weather", "description": "The weather of a city",
           "strict": False,
           "parameters": {"type": "object", "properties": {"city": {"type": "string"},
                                                           "days": {"type": "integer"}}}}


@pytest.fixture
def client(scripted):
    return openai.OpenAI(base_url=scripted.url + "/v1", api_key="unused", max_retries=0)


def test_create(client):
    answer = client.responses.create(model="scripted", instructions="Be kind.", input="Hi",
                                     metadata={"a": "b"})
    assert answer.status == "completed" and answer.error is None
    assert answer.output_text == "Hello! How can I help?"
    reasoning, message = answer.output
    assert reasoning.type == "reasoning"
    assert reasoning.content[0].text == "The user greets me."
    assert message.type == "message" and message.role == "assistant"
    assert answer.metadata == {"a": "b"} and answer.instructions == "Be kind."
    assert 0 < answer.usage.output_tokens_details.reasoning_tokens < answer.usage.output_tokens


def test_stream(client):
    events = list(client.responses.create(model="scripted", input="Hi", stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type for e in events]
    once = [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k]
    assert once == [
        "response.created", "response.in_progress",
        "response.output_item.added", "response.content_part.added",
        "response.reasoning_text.delta", "response.reasoning_text.done",
        "response.content_part.done", "response.output_item.done",
        "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done",
        "response.content_part.done", "response.output_item.done",
        "response.completed"]
    # Each became an object of the package's own class for it, not the fallback.
    assert type(events[0]).__name__ == "ResponseCreatedEvent"
    assert type(events[-1]).__name__ == "ResponseCompletedEvent"
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == "Hello! How can I help?"


def test_stream_helper(client):
    with client.responses.stream(model="scripted", input="Question W", tools=[WEATHER]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert {"response.function_call_arguments.delta", "response.function_call_arguments.done",
            "response.output_text.delta", "response.completed"} <= kinds
    assert final.output_text == "Let me look."
    call = final.output[-1]
    assert call.type == "function_call" and json.loads(call.arguments) == {"city": "Kyoto",
                                                                           "days": 2}


def test_tool_loop(client):
    said = [{"role": "user", "content": "Question W"}]
    first = client.responses.create(model="scripted", input=said, tools=[WEATHER])
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
    call = first.output[-1]
    assert call.name == "get_weather" and call.status == "completed"
    said += first.output  # reasoning too, as the package hands it back
    said.append({"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"})
    second = client.responses.create(model="scripted", input=said, tools=[WEATHER])
    assert second.output_text == "It is 18 degrees in Kyoto."


def test_two_calls(client):
    answer = client.responses.create(model="scripted", input="Question 2", tools=[WEATHER])
    made = [item for item in answer.output if item.type == "function_call"]
    assert [json.loads(c.arguments)["city"] for c in made] == ["Kyoto", "Oslo"]
    assert len({c.call_id for c in made}) == 2


def test_length(client):
    answer = client.responses.create(model="scripted", input="Question L", max_output_tokens=9)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.output_tokens == 9


def test_failure_in_a_stream(client):
    events = list(client.responses.create(model="scripted", input="Question E", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.status == "failed"
    assert events[-1].response.error.code == "server_error"


def test_state_is_not_kept(client):
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="scripted", input="Hi", previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
