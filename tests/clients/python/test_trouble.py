"""Refusals, retries, keys, timeouts and clients that leave, with both official packages."""

import concurrent.futures

import anthropic
import openai
import pytest

from serving import SCRIPT, Server, wait_for


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
def client(scripted):
    return openai.OpenAI(base_url=scripted.url + "/v1", api_key="unused", max_retries=0)


@pytest.fixture
def claude(scripted):
    return anthropic.Anthropic(base_url=scripted.url, api_key="unused", max_retries=0)


@pytest.mark.parametrize("member, value", [
    ("temperature", 9), ("top_p", 2), ("n", 0), ("max_tokens", -1), ("top_logprobs", 99),
    ("messages[0].role", None), ("messages", None)])
def test_bad_request(client, member, value):
    body = {"messages": user("Hi"), "logprobs": True, member: value}
    if member == "messages[0].role":
        body["messages"] = [{"role": "nobody", "content": "x"}]
    elif member == "messages":
        body["messages"] = []
    if "[" in member:
        del body[member]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="scripted", **body)
    assert caught.value.param == member
    assert caught.value.type == caught.value.code == "invalid_request_error"
    assert member in caught.value.message


def test_unknown_model(client):
    for create in (lambda: client.chat.completions.create(model="gpt-5", messages=user("Hi")),
                   lambda: client.completions.create(model="gpt-5", prompt="Hi"),
                   lambda: client.responses.create(model="gpt-5", input="Hi")):
        with pytest.raises(openai.NotFoundError) as caught:
            create()
        assert caught.value.code == "model_not_found" and caught.value.param == "model"
        assert "gpt-5" in caught.value.message


def test_what_is_not_there(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.embeddings.create(model="scripted", input="Hi")
    assert "/v1/embeddings" in caught.value.message
    with pytest.raises(openai.NotFoundError):
        client.images.generate(model="scripted", prompt="a car")


def test_failures(client):
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="scripted", messages=user("Question F"))
    assert "the script broke" in caught.value.message
    text = ""
    with pytest.raises(openai.APIError) as caught:
        for chunk in client.chat.completions.create(model="scripted", messages=user("Question E"),
                                                    stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == "Begun" and "the script broke" in caught.value.message


def test_failures_are_tried_again(scripted):
    client = openai.OpenAI(base_url=scripted.url + "/v1", api_key="unused", max_retries=1)
    before = scripted.posts()
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="scripted", messages=user("Question F"))
    assert scripted.posts() == before + 2


@pytest.fixture
def full():
    """A server that can take nothing more, and the streams that fill it."""
    with Server("--max-sequences", "1", "--max-queue", "1", script=SCRIPT) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)
        streams = []
        for count in ((1, 0), (1, 1)):
            streams.append(client.chat.completions.create(
                model="scripted", messages=user("Question L"), stream=True))
            wait_for(lambda: (server.stats()["running"], server.stats()["waiting"]) == count,
                     f"{count} running and waiting")
        yield server, streams
        for stream in streams:
            stream.close()
        server.wait_idle()


def test_full_queue(full):
    server, _ = full
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)
    for create in (lambda: client.chat.completions.create(model="scripted", messages=user("Hi")),
                   lambda: client.responses.create(model="scripted", input="Hi", stream=True)):
        with pytest.raises(openai.RateLimitError) as caught:
            create()
        assert caught.value.response.headers["retry-after"] == "1"
        assert caught.value.type == "rate_limit_error"
    claude = anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0)
    with pytest.raises(anthropic.RateLimitError) as caught:
        claude.messages.create(model="claude", max_tokens=9, messages=user("Hi"))
    assert caught.value.body["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_full_queue_is_tried_again(full, package):
    server, streams = full
    before = server.posts()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        if package == "openai":
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=9)
            later = pool.submit(client.chat.completions.with_raw_response.create,
                                model="scripted", messages=user("Hi"))
        else:
            claude = anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=9)
            later = pool.submit(claude.messages.with_raw_response.create, model="claude",
                                max_tokens=99, messages=user("Hi"))
        wait_for(lambda: server.posts() > before, "the first attempt")
        for stream in streams:
            stream.close()
        assert later.result().retries_taken >= 1


def test_closing_a_stream_cancels(scripted, client, claude):
    def left(stream):
        next(iter(stream))
        wait_for(lambda: scripted.stats()["running"] == 1, "a running request")
        stream.close()
        scripted.wait_idle()

    left(client.chat.completions.create(model="scripted", messages=user("Question L"),
                                        stream=True))
    left(client.completions.create(model="scripted", prompt="Question L", stream=True))
    left(client.responses.create(model="scripted", input="Question L", stream=True))
    left(claude.messages.create(model="claude", max_tokens=99999, messages=user("Question L"),
                                stream=True))


def test_a_timeout_cancels(scripted, client, claude):
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(
            model="scripted", messages=user("Question L"))
    scripted.wait_idle()
    with pytest.raises(anthropic.APITimeoutError):
        claude.with_options(timeout=0.3).messages.create(
            model="claude", max_tokens=9999, messages=user("Question L"))
    scripted.wait_idle()


def test_keys():
    key = {"Authorization": "Bearer good-key"}
    with Server("--api-key", "good-key", script=SCRIPT, headers=key) as server:
        for name, works in (("good-key", True), ("bad-key", False)):
            client = openai.OpenAI(base_url=server.url + "/v1", api_key=name)
            claude = anthropic.Anthropic(base_url=server.url, api_key=name)
            bearer = anthropic.Anthropic(base_url=server.url, auth_token=name)
            chat = {"model": "scripted", "messages": user("Hi")}
            calls = [(openai, lambda: client.chat.completions.create(**chat)),
                     (openai, lambda: client.models.list()),
                     (openai, lambda: client.responses.create(model="scripted", input="Hi")),
                     (anthropic, lambda: claude.messages.create(max_tokens=99, **chat)),
                     (anthropic, lambda: bearer.messages.create(max_tokens=99, **chat)),
                     (anthropic, lambda: claude.messages.count_tokens(**chat))]
            for package, create in calls:
                if works:
                    create()
                    continue
                with pytest.raises(package.AuthenticationError) as caught:
                    create()
                error = caught.value.body
                if package is openai:
                    assert caught.value.code == "invalid_api_key"
                else:
                    assert error["error"]["type"] == "authentication_error"
