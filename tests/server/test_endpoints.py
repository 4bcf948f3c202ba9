"""Every path and method, and how connections carry them."""

import json

import pytest
from support import PATHS, answers_of, assert_error, bodies, raw, receive, usage_of

ALIASES = {
    "chat": ["/v1/chat/completions", "/chat/completions", "/beta/chat/completions"],
    "completions": ["/v1/completions", "/completions", "/beta/completions"],
    "messages": ["/v1/messages", "/anthropic/v1/messages", "/anthropic/messages",
                 "/v1/messages?beta=true"],
    "responses": ["/v1/responses", "/responses"],
}
GETS = ["/health", "/ping", "/ready", "/version", "/v1/models", "/models", "/stats", "/metrics"]


@pytest.mark.parametrize("protocol", ALIASES)
def test_aliases_answer_alike(scripted, protocol):
    tokens = scripted.ok("/tokenize", {"prompt": "Fine."}).json["count"]  # one more: the end
    for path in ALIASES[protocol]:
        body = scripted.ok(path, bodies()[protocol]).json
        assert "Fine." in json.dumps(body), (path, body)
        assert usage_of(protocol, body)[2] == tokens


def test_gets_and_heads(scripted):
    for path in GETS:
        answer, head = scripted.ok(path), scripted.ask("HEAD", path)
        assert head.status == 200 and head.body == b"", path
        assert head.headers["content-type"] == answer.headers["content-type"], path
        assert int(head.headers["content-length"]) > 0, path
        assert answer.headers["x-request-id"] and answer.headers["date"], path
    assert scripted.ask("POST", "/ping").status == 200
    assert scripted.ok("/ready").json == {"status": "ready"}
    assert set(scripted.ok("/version").json) == {"version"}


def test_models(scripted):
    listed = scripted.ok("/v1/models").json
    assert scripted.ok("/models").json == listed
    assert listed["object"] == "list" and [m["id"] for m in listed["data"]] == ["scripted"]
    one = scripted.ok("/v1/models/scripted").json
    assert one == listed["data"][0]
    assert one["max_model_len"] == 1 << 20 and one["owned_by"] == "kuruma"
    assert scripted.ok("/v1/models/deepseek-chat").json["id"] == "deepseek-chat"
    missing = scripted.get("/v1/models/some/other%20one")
    assert "some/other one" in assert_error("chat", missing, 404)
    assert missing.json["error"]["code"] == "model_not_found"


def test_model_names_of_requests(serve):
    with serve("--served-model-name", "org/big", "--model-alias", "big") as server:
        for protocol, body in bodies().items():
            for name in ("org/big", "big", "deepseek-flash", "deepseek-v4.1-flash",
                         "deepseek-chat", "deepseek-reasoner", ""):
                answer = server.ok(PATHS[protocol], {**body, "model": name}).json
                assert answer["model"] == (name or "org/big")
            message = assert_error(protocol, server.post(PATHS[protocol],
                                                         {**body, "model": "gpt"}), 404)
            assert "`gpt`" in message and "org/big" in message
            claude = server.post(PATHS[protocol], {**body, "model": "claude-haiku-4"})
            assert claude.status == (200 if protocol == "messages" else 404)
        assert server.ok("/v1/models/org/big").json["root"] == "org/big"
        assert server.ok("/v1/models/org%2Fbig").json["id"] == "org/big"


def test_count_tokens(scripted):
    body = {"model": "claude-x", "messages": [{"role": "user", "content": "How many?"}]}
    for path in ("/v1/messages/count_tokens", "/anthropic/v1/messages/count_tokens"):
        count = scripted.ok(path, body).json
        used = usage_of("messages", scripted.ok("/v1/messages", {**body, "max_tokens": 5}).json)
        assert count == {"input_tokens": used[0]}
        assert_error("messages", scripted.post(path, {"messages": 3}), 400)


def test_tokenize_and_back(scripted):
    text = "héllo <think> wörld 👋🏽"
    answer = scripted.ok("/tokenize", {"prompt": text, "return_token_strs": True}).json
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert answer["max_model_len"] == 1 << 20
    back = scripted.ok("/detokenize", {"tokens": answer["tokens"]}).json
    assert back["prompt"].endswith(text) and back["prompt"] != text  # begins with the marker
    bare = {"prompt": text, "add_special_tokens": False}
    assert scripted.ok("/tokenize", bare).json["tokens"] == answer["tokens"][1:]
    assert scripted.ok("/tokenize", {"content": text}).json["tokens"] == answer["tokens"]
    plain = scripted.ok("/tokenize", {**bare, "parse_special": False}).json
    assert plain["count"] > answer["count"] - 1
    assert scripted.ok("/detokenize", {"tokens": plain["tokens"]}).json["prompt"] == text
    chat = {"messages": [{"role": "user", "content": "Hi"}], "thinking": {"type": "disabled"}}
    used = usage_of("chat", scripted.ok("/v1/chat/completions", chat).json)
    assert scripted.ok("/tokenize", chat).json["count"] == used[0]
    for path, body in [("/tokenize", {}), ("/tokenize", {"prompt": 3}), ("/tokenize", []),
                       ("/detokenize", {}), ("/detokenize", {"tokens": [-1]}),
                       ("/detokenize", {"tokens": [1 << 40]}), ("/detokenize", {"tokens": [0.5]}),
                       ("/detokenize", {"tokens": "1"})]:
        assert_error("chat", scripted.post(path, body), 400)
    assert scripted.ok("/detokenize", {"tokens": []}).json == {"prompt": ""}


def test_unknown_paths_and_methods(scripted):
    for path in ("/v2/chat/completions", "/v1", "/v1/models/", "//health", "/health/"):
        assert path.split("?")[0] in assert_error("chat", scripted.get(path), 404)
    for path in ALIASES["chat"] + ALIASES["responses"] + ["/tokenize"]:
        answer = scripted.get(path)
        assert_error("chat", answer, 405)
        assert answer.headers["allow"] == "POST"
    for path in ALIASES["messages"] + ["/v1/messages/count_tokens"]:
        assert_error("messages", scripted.get(path), 405)
        assert_error("messages", scripted.post(path.split("?")[0] + "/more", {}), 404)
    for method in ("POST", "PUT", "DELETE", "PATCH", "BREW"):
        answer = scripted.ask(method, "/v1/models", b"")
        assert_error("chat", answer, 405)
        assert answer.headers["allow"].startswith("GET, HEAD")
    assert scripted.ask("HEAD", "/v1/chat/completions").status == 405
    assert scripted.ok("/%68ealth").json == {}


def test_content_type_does_not_matter(scripted):
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded", ""):
        headers = {"Content-Type": kind}
        assert scripted.ok(PATHS["chat"], bodies()["chat"], headers=headers).json["choices"]


def test_request_ids_come_back(scripted):
    assert scripted.ok("/health", headers={"X-Request-Id": "abc-1"}).headers[
        "x-request-id"] == "abc-1"
    drawn = scripted.ok("/health", headers={"X-Request-Id": "bad id\x01"[:6]}).headers
    assert drawn["x-request-id"].startswith("req_")


def test_one_connection_carries_everything(scripted):
    connection = scripted.connection()
    sockets = set()
    for _ in range(3):
        for protocol, body in bodies().items():
            for stream in (False, True):
                answer = scripted.ok(PATHS[protocol], {**body, "stream": stream},
                                     connection=connection)
                assert (answer.events if stream else answer.json)
            assert_error(protocol, scripted.post(PATHS[protocol], b"{", connection=connection))
        scripted.ok("/health", connection=connection)
        assert scripted.get("/nowhere", connection=connection).status == 404
        sockets.add(connection.sock)
    assert len(sockets) == 1 and None not in sockets
    connection.close()


def test_pipelined_requests_are_answered_in_order(scripted):
    chat = json.dumps(bodies()["chat"]).encode()
    with scripted.socket() as sock:
        sock.sendall(raw("GET", "/version") + raw("POST", PATHS["chat"], chat)
                     + raw("GET", "/nowhere")
                     + raw("POST", "/tokenize", b'{"prompt":"a"}') + raw("POST", PATHS["chat"], b"{")
                     + raw("GET", "/health", headers=["Connection: close"]))
        answers = answers_of(receive(sock))
    assert [a.status for a in answers] == [200, 200, 404, 200, 400, 200]
    assert answers[1].json["choices"][0]["message"]["content"] == "Fine."
    assert answers[3].json["count"] == 2


def test_http_1_0_gets_the_stream_up_to_the_end(scripted):
    body = json.dumps({**bodies()["chat"], "stream": True}).encode()
    with scripted.socket() as sock:
        sock.sendall(raw("POST", PATHS["chat"], body).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, events = receive(sock).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert events.startswith(b"data: {") and events.endswith(b"data: [DONE]\n\n")


def test_chunked_bodies(scripted):
    text = json.dumps(bodies()["chat"]).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(text[i:i + 7]), text[i:i + 7])
                      for i in range(0, len(text), 7)) + b"0\r\n\r\n"
    with scripted.socket() as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        answer, = answers_of(receive(sock))
    assert answer.status == 200 and answer.json["choices"][0]["message"]["content"] == "Fine."


def test_bodies_and_headers_have_limits(serve):
    with serve("--max-body-bytes", 2000, "--max-header-bytes", 2000) as server:
        big = {"messages": [{"role": "user", "content": "x" * 3000}]}
        for path in (PATHS["chat"], PATHS["messages"], "/tokenize"):
            answer = server.post(path, big)
            assert answer.status == 413 and "2000" in answer.json["error"]["message"]
        assert server.get("/health", headers={"X": "y" * 3000}).status == 431
        assert server.get("/" + "y" * 3000).status == 414
        server.ok(PATHS["chat"], bodies()["chat"])
