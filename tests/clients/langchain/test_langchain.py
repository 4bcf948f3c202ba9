"""langchain-openai and langchain-deepseek."""

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_deepseek import ChatDeepSeek
from langchain_openai import ChatOpenAI
import openai


@tool
def get_weather(city: str, days: int = 1) -> str:
    """The weather of a city."""
    return f"18 degrees in {city} for {days} days"


def chat_openai(server, **more):
    return ChatOpenAI(model="scripted", base_url=server.url + "/v1", api_key="x", max_retries=0,
                      **more)


def chat_responses(server, **more):
    return chat_openai(server, use_responses_api=True, **more)


def chat_deepseek(server, **more):
    return ChatDeepSeek(model="deepseek-chat", api_base=server.url + "/v1", api_key="x",
                        max_retries=0, **more)


@pytest.fixture(params=[chat_openai, chat_responses, chat_deepseek])
def make(request):
    return request.param


def test_invoke(scripted, make):
    message = make(scripted).invoke("Hi")
    assert message.text == "Hello! How can I help?"
    usage = message.usage_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0


def test_reasoning(scripted):
    message = chat_deepseek(scripted).invoke("Hi")
    assert message.additional_kwargs["reasoning_content"] == "The user greets me."
    parts = [c.additional_kwargs.get("reasoning_content", "")
             for c in chat_deepseek(scripted).stream("Hi")]
    assert "".join(parts) == "The user greets me."


def test_reasoning_of_responses(scripted):
    first = chat_responses(scripted).invoke("Hi").content[0]
    assert first["type"] == "reasoning"
    assert first["content"][0]["text"] == "The user greets me."


def test_stream(scripted, make):
    whole = None
    for chunk in make(scripted).stream("Question U"):
        whole = chunk if whole is None else whole + chunk
    assert whole.text == "車は速い 🚗 – 100 km/h."


def test_tool_loop(scripted, make):
    chat = make(scripted).bind_tools([get_weather])
    said = [HumanMessage("Question W: the weather in Kyoto?")]
    said.append(chat.invoke(said))
    call, = said[-1].tool_calls
    assert call["name"] == "get_weather" and call["args"] == {"city": "Kyoto", "days": 2}
    said.append(get_weather.invoke(call))
    assert isinstance(said[-1], ToolMessage)
    assert chat.invoke(said).text == "It is 18 degrees in Kyoto."


def test_tool_loop_streamed(scripted, make):
    chat = make(scripted).bind_tools([get_weather])
    whole = None
    for chunk in chat.stream("Question 2"):
        whole = chunk if whole is None else whole + chunk
    assert [c["args"] for c in whole.tool_calls] == [{"city": "Kyoto", "days": 1},
                                                     {"city": "Oslo", "days": 1}]


def test_batch(scripted, make):
    assert [m.text for m in make(scripted).batch(["Hi"] * 6)] == ["Hello! How can I help?"] * 6


def test_errors(scripted, make):
    with pytest.raises(openai.BadRequestError):
        make(scripted, temperature=9).invoke("Hi")
    with pytest.raises(openai.InternalServerError):
        make(scripted).invoke("Question F")
