"""Whatever is sent: an answer below 500 in the protocol's form, soon, and the server lives on."""

import copy
import json
import random
import socket
import time

import pytest
from support import PATHS, answers_of, assert_error, bodies, dump, raw, receive, wait_for

TOOL = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

# Bodies with about every member that is read.
RICH = {
    "chat": {
        "model": "scripted", "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "n": 2,
        "max_tokens": 4, "max_completion_tokens": 4, "seed": 1, "stop": ["x"], "logprobs": True,
        "top_logprobs": 2, "presence_penalty": 0.1, "frequency_penalty": 0.1,
        "repetition_penalty": 1.1, "logit_bias": {"5": 1.5}, "min_tokens": 1,
        "stop_token_ids": [7], "ignore_eos": False, "priority": 1, "cache_salt": "s",
        "user_id": "u", "stream": True, "stream_options": {"include_usage": True},
        "thinking": {"type": "enabled"}, "reasoning_effort": "high", "tool_choice": "auto",
        "parallel_tool_calls": True, "response_format": {"type": "text"},
        "tools": [{"type": "function", "function": {"name": "f", "description": "d",
                                                    "parameters": TOOL, "strict": False}}],
        "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "name": "n", "content": [
                {"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f",
                                                             "arguments": "{\"a\": \"b\"}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "done"}]},
    "completions": {
        "model": "scripted", "prompt": ["a", "b"], "max_tokens": 4, "temperature": 1, "top_p": 1,
        "n": 2, "stop": "x", "logprobs": 2, "echo": True, "seed": 3, "stream": False,
        "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {"1": 1}, "best_of": 2},
    "messages": {
        "model": "claude-x", "max_tokens": 4, "temperature": 0.5, "top_p": 0.5, "top_k": 3,
        "stop_sequences": ["x"], "stream": False, "system": [{"type": "text", "text": "s"}],
        "thinking": {"type": "enabled", "budget_tokens": 100}, "metadata": {"user_id": "u"},
        "tools": [{"name": "f", "description": "d", "input_schema": TOOL}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "output_config": {"effort": "high"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "b"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "is_error": False,
                 "content": [{"type": "text", "text": "done"}]}]}]},
    "responses": {
        "model": "scripted", "instructions": "i", "max_output_tokens": 4, "temperature": 0.5,
        "top_p": 0.5, "stream": False, "store": False, "parallel_tool_calls": False,
        "reasoning": {"effort": "high", "summary": "auto"}, "text": {"format": {"type": "text"}},
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": TOOL},
                  {"type": "custom", "name": "apply_patch"}],
        "tool_choice": "auto", "metadata": {"k": "v"}, "top_logprobs": 0,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "id": "r", "summary": [], "content": [
                {"type": "reasoning_text", "text": "t"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "done"}]},
}
ODD = [None, True, -1, 0, 1.5, 1e308, 10 ** 30, -2 ** 63, "", "x", "\ud800", "\0", [], {}, [[]],
       [None], {"a": None}, "<｜User｜>", ["x"] * 50]


def places(value, path=()):
    """Paths to everything within a JSON value."""
    members = (value.items() if isinstance(value, dict) else
               enumerate(value) if isinstance(value, list) else ())
    for key, member in members:
        yield path + (key,)
        yield from places(member, path + (key,))


def changed(body, path, change):
    result = copy.deepcopy(body)
    holder = result
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return result


def judge(protocol, answer, body):
    """Good answers are whole; refusals have their form; nothing is the server's fault."""
    assert answer.status < 500, (answer.status, answer.body[:500], body[:3000])
    if answer.status != 200:
        assert_error(protocol, answer)
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.events
    else:
        assert answer.json
    return answer.status


def all_answered(server, protocol, texts):
    connection, statuses = server.connection(), set()
    for text in texts:
        statuses.add(judge(protocol, server.post(PATHS[protocol], text, connection=connection),
                           text))
    connection.close()
    return statuses


@pytest.mark.parametrize("protocol", PATHS)
def test_the_rich_bodies_are_good(scripted, protocol):
    assert all_answered(scripted, protocol, [dump(RICH[protocol])]) == {200}


@pytest.mark.parametrize("protocol", PATHS)
def test_odd_values_everywhere(scripted, protocol):
    rng = random.Random(protocol)
    texts = []
    for path in places(RICH[protocol]):
        texts.append(changed(RICH[protocol], path, lambda holder, key: holder.pop(key)))
        for odd in rng.sample(ODD, 6):
            texts.append(changed(RICH[protocol], path,
                                 lambda holder, key, o=odd: holder.__setitem__(key, o)))
    texts = [json.dumps(text).encode() for text in texts]
    assert len(texts) > 100
    assert all_answered(scripted, protocol, texts) >= {200, 400}


@pytest.mark.parametrize("protocol", PATHS)
def test_damaged_text(scripted, protocol):
    rng = random.Random(protocol)
    good = dump(RICH[protocol])
    texts = [good[:cut] for cut in rng.sample(range(len(good)), 40)]
    for _ in range(120):
        text = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            text[at:at + rng.randint(0, 2)] = rng.choice(
                [b"", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\0", b"\"", b"{", b"]", b"9" * 400,
                 b"\\u", b"\\ud83d", b"NaN", b"-", b"1e999", b"\r\n", b"/*"])
        texts.append(bytes(text))
    all_answered(scripted, protocol, texts)


@pytest.mark.parametrize("protocol", PATHS)
def test_whole_bodies_of_the_wrong_kind(scripted, protocol):
    texts = [b"", b" ", b"null", b"[]", b"0", b"\"x\"", b"NaN", b"{}", b"{}{}", b"{\"a\":1,}",
             b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b"[" * 100_000, b"{\"a\":" * 50_000,
             b"{\"messages\":" + b"[" * 10_000 + b"]" * 10_000 + b"}", b"9" * 100_000,
             b"\"" + b"\\u0000" * 1000 + b"\"", b"a=b&c=d", b"--boundary\r\n\r\n"]
    assert all_answered(scripted, protocol, texts) == {400}


@pytest.mark.parametrize("protocol", PATHS)
def test_the_last_of_equal_keys_counts_or_all_are_refused(scripted, protocol):
    body = dump(bodies()[protocol])
    name = b'"max_output_tokens"' if protocol == "responses" else b'"max_tokens"'
    twice = body[:-1] + b"," + name + b":1}"
    assert all_answered(scripted, protocol, [twice]) <= {200, 400}


@pytest.mark.parametrize("protocol", PATHS)
def test_numbers_out_of_range(scripted, protocol):
    limit = "max_output_tokens" if protocol == "responses" else "max_tokens"
    for value in (0, -1, 1.5, "5", True, 10 ** 400, -10 ** 400):
        body = dump({**bodies()[protocol], limit: value})
        assert_error(protocol, scripted.post(PATHS[protocol], body), 400)
    for temperature in (-0.1, 1e300, "1", True):
        body = dump({**bodies()[protocol], "temperature": temperature})
        assert_error(protocol, scripted.post(PATHS[protocol], body), 400)
    for spelled in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"0x1", b"01", b"+1", b".5"):
        body = dump(bodies()[protocol])[:-1] + b',"temperature":' + spelled + b"}"
        assert_error(protocol, scripted.post(PATHS[protocol], body), 400)


def test_images_and_grammars_are_refused_by_name(scripted):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for body, word in [
            ({"messages": [{"role": "user", "content": [image]}]}, "images"),
            ({"messages": [{"role": "user", "content": "x"}],
              "response_format": {"type": "json_object"}}, "response formats"),
            ({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required",
              "tools": RICH["chat"]["tools"]}, "tool_choice")]:
        message = assert_error("chat", scripted.post(PATHS["chat"], body), 400)
        assert word in message and "not supported by this server yet" in message


# --------------------------------------------------------------------------------- large bodies

def test_a_body_of_64_megabytes(scripted):
    """At the limit it is read, one byte more is refused before it is read."""
    limit = 64 << 20
    frame = b'{"model":"none","messages":[{"role":"user","content":"'
    body = frame + b"x" * (limit - len(frame) - 4) + b'"}]}'
    assert len(body) == limit
    assert_error("chat", scripted.post(PATHS["chat"], body), 404)  # read, and no such model
    for protocol in ("chat", "messages"):
        with scripted.socket() as sock:
            sock.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                         % (PATHS[protocol].encode(), limit + 1))
            answer, = answers_of(receive(sock))
        assert str(limit) in assert_error(protocol, answer, 413)


def test_prompts_longer_than_the_cache_are_refused(serve):
    with serve("--kv-memory", 128 * 8) as server:  # 8 blocks of 128 tokens
        text = "a b c d e f g " * 200
        for protocol in PATHS:
            answer = server.post(PATHS[protocol], bodies(text)[protocol])
            assert_error(protocol, answer, 400)
        server.ok(PATHS["chat"], bodies()["chat"])


# ------------------------------------------------------------------------------- broken requests

BROKEN = [
    b"\r\n\r\n\r\n\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET /\r\n\r\n",
    b"GET / HTTP/2.0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET x HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"GET /none HTTP/1.1\r\nHost: x\r\n bad: folded\r\n\r\n", b"GET / HTTP/1.1\r\nHo st: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 6\r\n\r\nabcde",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 0\r\n\r\n",
    b"\0" * 100, b"\xff" * 100, b"GET / HTTP/1.1\nHost: x\n\n", b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n",
]


@pytest.mark.parametrize("index", range(len(BROKEN)))
def test_broken_requests(scripted, index):
    with scripted.socket() as sock:
        sock.sendall(BROKEN[index])
        sock.shutdown(socket.SHUT_WR)
        data = receive(sock)
    if data:  # some are cut without a word
        answer = answers_of(data)[0]
        assert 400 <= answer.status < 500 or answer.status in (501, 505), data
        assert answer.json["error"]["message"]


def test_lengths_that_are_wrong(scripted):
    body = dump(bodies()["chat"])
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    with scripted.socket() as sock:  # too long: the rest never comes
        sock.sendall(head % (len(body) + 10) + body)
        sock.shutdown(socket.SHUT_WR)
        answer, = answers_of(receive(sock))
        assert answer.status == 400 and "ended" in answer.json["error"]["message"]
    with scripted.socket() as sock:  # too short: the JSON is cut, the rest is no request
        sock.sendall(head % (len(body) - 5) + body + b"\r\n\r\n")
        first, second = answers_of(receive(sock))
        assert first.status == second.status == 400


def test_floods_of_headers(scripted):
    for flood in (b"X: y\r\n" * 20_000, b"X-%d: y\r\n" % 5 * 5000, b"X: " + b"y" * 1_000_000):
        with scripted.socket() as sock:
            try:
                sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + flood)
            except (ConnectionResetError, BrokenPipeError):
                continue  # it had enough
            data = receive(sock)
            assert not data or data.startswith(b"HTTP/1.1 431 "), data[:200]
    scripted.ok("/health")


def test_slow_senders_are_cut(serve):
    with serve("--header-timeout", 0.3, "--body-timeout", 0.3, "--idle-timeout", 0.3) as server:
        pieces = {
            "silent": [b""],
            "header": [b"GET /health HT", b"TP/1.1\r\n", b"A: b\r\n", b"C: d\r\n"],
            "body": [raw("POST", PATHS["chat"], b"x" * 500)[:-400], b"x"],
        }
        for name, parts in pieces.items():
            with server.socket() as sock:
                begin = time.monotonic()
                for part in parts:
                    try:
                        sock.sendall(part)
                    except OSError:
                        break
                data = receive(sock)
                assert time.monotonic() - begin < 20, name
            assert not data or answers_of(data)[0].status == 408, (name, data)
        server.ok("/health")


def test_connections_have_a_limit(serve):
    with serve("--max-connections", 8) as server:
        socks = [server.socket() for _ in range(8)]
        for sock in socks:
            sock.sendall(raw("GET", "/health"))
            assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        with server.socket() as ninth:
            answer, = answers_of(receive(ninth))
            assert answer.status == 503 and "8 connections" in answer.json["error"]["message"]
        for sock in socks:
            sock.close()

        def again():
            with server.socket() as sock:
                sock.sendall(raw("GET", "/health", headers=["Connection: close"]))
                return receive(sock).startswith(b"HTTP/1.1 200")
        wait_for(again)


def test_half_closed_without_a_request(scripted):
    for _ in range(20):
        with scripted.socket() as sock:
            sock.shutdown(socket.SHUT_WR)
            assert receive(sock) == b""
    scripted.ok("/health")
