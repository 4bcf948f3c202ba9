"""Who may call: API keys, TLS, unix sockets, pages of other origins, exposure."""

import json
import ssl
import subprocess

import pytest
from support import PATHS, assert_error, bodies, raw, receive, run, wait_for

ORIGIN = "https://page.example"


# ---------------------------------------------------------------------------------------- keys

def test_keys(serve):
    with serve("--api-key", "first-key", "--api-key", "second", key="second") as server:
        open_paths = ("/health", "/ping", "/ready", "/version")
        for path in open_paths:
            assert server.get(path, headers={"x-api-key": ""}).status == 200, path
        for protocol, body in bodies().items():
            path = PATHS[protocol]
            for key in ("first-key", "second"):
                for headers in ({"Authorization": "Bearer " + key},
                                {"authorization": "bearer  " + key}, {"X-API-Key": key}):
                    server.ok(path, body, headers=headers | {"x-api-key": key})
            missing = server.post(path, body, headers={"x-api-key": ""})
            assert "No API key" in assert_error(protocol, missing, 401)
            for headers in ({"Authorization": "Bearer wrong"}, {"x-api-key": "second "[:-1] + "x"},
                            {"Authorization": "Bearer secon"}, {"x-api-key": "SECOND"}):
                message = assert_error(protocol, server.post(path, body, headers=headers), 401)
                assert "Incorrect API key" in message
                for key in ("first-key", "second"):
                    assert key not in message
            assert missing.headers["www-authenticate"] == "Bearer"
            kind = missing.json["error"]
            assert kind["type"] == ("authentication_error" if protocol == "messages"
                                    else "invalid_request_error")
        wrong = {"x-api-key": "wrong"}
        for path in ("/v1/models", "/models", "/v1/models/scripted", "/metrics", "/stats"):
            assert_error("chat", server.get(path, headers=wrong), 401)
            server.ok(path)
        for path in ("/tokenize", "/detokenize"):
            assert_error("chat", server.post(path, {"prompt": "a"}, headers=wrong), 401)
        for path in ("/v1/messages/count_tokens", "/anthropic/v1/messages/count_tokens"):
            assert_error("messages", server.post(path, {}, headers=wrong), 401)
        # Bearer wins over x-api-key.
        assert server.get("/v1/models", headers={"Authorization": "Bearer wrong",
                                                 "x-api-key": "second"}).status == 401


def test_keys_stay_out_of_log_and_summary(serve):
    secret = "sesame-open-7151"
    with serve("--api-key", secret, "--log-level", "debug", key=secret) as server:
        server.ok(PATHS["chat"], bodies()["chat"])
        server.post(PATHS["chat"], b"{", headers={"x-api-key": secret + "x"})
        assert "1 API keys" in server.summary
        wait_for(lambda: server.log().count('"POST"') == 2, server.log)
        assert secret not in server.log() + server.summary


def test_prompts_stay_out_of_the_log_unless_asked_for(serve):
    secret = "my private matter"
    for flags in ([], ["--log-prompts", "true"]):
        with serve("--log-level", "debug", *flags) as server:
            server.ok(PATHS["chat"], bodies(secret)["chat"])
            wait_for(lambda: '"POST"' in server.log(), server.log)
            assert (secret in server.log()) == bool(flags)


def test_the_cache_is_not_shared_between_keys(serve):
    body = bodies("word " * 300)["chat"]

    def cached(**headers):
        return server.ok(PATHS["chat"], body, headers=headers).json["usage"][
            "prompt_tokens_details"]["cached_tokens"]

    with serve("--api-key", "one", "--api-key", "two", key="one") as server:
        assert cached(Authorization="Bearer one") == 0
        assert cached(Authorization="Bearer one") > 0
        assert cached(Authorization="Bearer two") == 0
        body = {**body, "cache_salt": "of a user"}
        assert cached(Authorization="Bearer one") == 0
        assert cached(Authorization="Bearer one") > 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_listening_for_others_needs_a_key(host, tmp_path):
    done = run("serve", "--port", 0, "--host", host)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "without API keys" in done.stderr and host in done.stderr


def test_listening_for_others_with_a_key(serve):
    with serve("--host", "0.0.0.0", "--api-key", "k", key="k") as server:
        server.ok("/v1/models")


# ----------------------------------------------------------------------------------------- TLS

@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1,DNS:localhost"], check=True, capture_output=True)
    return cert, key


def test_tls(serve, certificate):
    cert, key = certificate
    with serve("--tls-cert", cert, "--tls-key", key) as server:
        assert server.url.startswith("https://127.0.0.1:") and "TLS on" in server.summary
        server.context = ssl.create_default_context(cafile=cert)
        connection = server.connection()
        for protocol, body in bodies().items():
            assert server.ok(PATHS[protocol], body, connection=connection).json
            assert server.ok(PATHS[protocol], {**body, "stream": True},
                             connection=connection).events
        connection.close()
        with server.socket() as plain:  # HTTP to the HTTPS port
            plain.sendall(raw("GET", "/health"))
            assert b"200" not in receive(plain)
        distrusting = ssl.create_default_context()
        with server.socket() as sock, pytest.raises(ssl.SSLError):
            distrusting.wrap_socket(sock, server_hostname="127.0.0.1")
        server.ok("/health")


def test_tls_files_are_checked(certificate, tmp_path):
    cert, key = certificate
    (tmp_path / "junk").write_text("nothing")
    for flags, word in [(["--tls-cert", cert], "tls_key"), (["--tls-key", key], "tls_cert"),
                        (["--tls-cert", "/none.pem", "--tls-key", key], "/none.pem"),
                        (["--tls-cert", cert, "--tls-key", tmp_path / "junk"], "junk"),
                        (["--tls-cert", key, "--tls-key", cert], "pem")]:
        done = run("serve", "--port", 0, *flags)
        assert done.returncode == 2 and len(done.stderr.splitlines()) <= 2, done.stderr
        assert word in done.stderr.splitlines()[-1], done.stderr


# ------------------------------------------------------------------------------- unix sockets

def test_unix_socket(serve, tmp_path):
    path = tmp_path / "s"
    with serve("--unix-socket", path) as server:
        assert server.unix == str(path)
        assert path.stat().st_mode & 0o002 == 0, "others may not connect"
        assert server.ok(PATHS["chat"], bodies()["chat"]).json["choices"]
        assert server.ok(PATHS["chat"], {**bodies()["chat"], "stream": True}).events
        wait_for(lambda: '"remote":"unix"' in server.log(), server.log)
        second = run("serve", "--unix-socket", path)
        assert second.returncode == 2 and str(path) in second.stderr
        server.ok("/health")
    assert not path.exists()


# ---------------------------------------------------------------------------------------- CORS

def preflight(server, origin=ORIGIN):
    return server.ask("OPTIONS", PATHS["chat"], headers={
        "Origin": origin, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type"})


def test_no_origin_is_allowed_by_default(scripted):
    assert preflight(scripted).status == 405
    for answer in (scripted.ok("/v1/models", headers={"Origin": ORIGIN}), preflight(scripted)):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_an_allowed_origin(serve):
    with serve("--cors-origin", ORIGIN, "--api-key", "k", key="k") as server:
        answer = preflight(server)
        assert answer.status == 204 and answer.body == b""
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
        assert preflight(server, "https://other.example").status == 403
        for stream in (False, True):
            answer = server.ok(PATHS["chat"], {**bodies()["chat"], "stream": stream},
                               headers={"Origin": ORIGIN, "x-api-key": "k"})
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert answer.headers["vary"] == "Origin"
        refused = server.post(PATHS["chat"], b"{", headers={"Origin": ORIGIN, "x-api-key": "no"})
        assert refused.status == 401  # and the page may read why
        assert refused.headers["access-control-allow-origin"] == ORIGIN
        other = server.ok("/v1/models", headers={"Origin": "https://other.example",
                                                 "x-api-key": "k"})
        assert "access-control-allow-origin" not in other.headers


def test_any_origin(serve):
    with serve("--cors-origin", "*") as server:
        assert preflight(server).headers["access-control-allow-origin"] == "*"


# ---------------------------------------------------------------------------------- access log

def test_access_log(serve):
    with serve() as server:
        server.post(PATHS["chat"], bodies()["chat"], headers={"x-request-id": "mine-1",
                                                              "User-Agent": 'a"b'})
        wait_for(lambda: "mine-1" in server.log(), server.log)
        line = next(json.loads(l) for l in server.log().splitlines() if "mine-1" in l)
    assert line["status"] == 200 and line["method"] == "POST" and line["path"] == PATHS["chat"]
    assert line["user_agent"] == 'a"b' and line["bytes_in"] > 0 and line["bytes_out"] > 0
    with serve("--access-log", "false") as server:
        server.ok("/health")
        server.ok("/health")
        assert "/health" not in server.log()
