"""Clients that leave, lag or come too many: nothing stays behind, nobody else notices."""

import json
import random
import signal
import socket
import struct
import threading

import pytest
from support import (PATHS, TIMEOUT, Server, at_once, assert_error, bodies, dump, raw, read_until,
                     receive, text_of, wait_for)

PLENTY = 100_000  # tokens


def reset(sock):
    """Closes at once, as a process that dies."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def leave(sock, how):
    if how == "half":
        sock.shutdown(socket.SHUT_WR)
        receive(sock)
        sock.close()
    elif how == "reset":
        reset(sock)
    else:
        sock.close()


def asked(protocol, text, stream):
    return {**bodies(text, tokens=PLENTY)[protocol], "stream": stream}


def running(server):
    return server.stats()["requests"]["running"]


def waiting(server):
    return server.stats()["requests"]["waiting"]


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("stream", [True, False])
def test_leaving_while_it_runs(serve, stream, how):
    with serve() as server:
        for protocol in PATHS:
            sock = server.send(PATHS[protocol], asked(protocol, "Write slowly.", stream))
            if stream:
                read_until(sock, b"~")
            wait_for(lambda: running(server) == 1)
            leave(sock, how)
            server.settle()
        assert server.metric("kuruma_client_disconnects_total") == len(PATHS)


def test_leaving_the_queue(serve):
    with serve("--max-sequences", 1) as server:
        first = server.send(PATHS["chat"], asked("chat", "Write slowly.", True))
        read_until(first, b"~")
        queued = [server.send(PATHS[p], asked(p, "Write slowly.", stream))
                  for p in PATHS for stream in (True, False)]
        wait_for(lambda: waiting(server) == len(queued))
        for i, sock in enumerate(queued):
            leave(sock, ["close", "reset"][i % 2])
        wait_for(lambda: waiting(server) == 0)
        assert running(server) == 1
        read_until(first, b"~")
        first.close()
        server.settle()
        assert server.ok(PATHS["chat"], bodies()["chat"]).json["choices"]


def test_leaving_during_a_long_prompt():
    """The bundled model reads a prompt in many small steps."""
    with Server("--max-step-tokens", 32) as server:
        body = {**bodies("A word or two. " * 450, tokens=5)["chat"], "stream": True}
        sock = server.send(PATHS["chat"], body)
        wait_for(lambda: running(server) == 1)
        sock.close()
        server.settle()
        stats = server.stats()
        assert stats["tokens"]["generated"] == 0, stats


def test_leaving_before_the_first_token(serve):
    """A step that lasts is waited for; then everything is free."""
    lines = [{"match": "later", "text": "~", "repeat": True, "first_delay_ms": 500}]
    with serve(lines=lines) as server:
        socks = [server.send(PATHS["chat"], asked("chat", "Answer later.", i % 2 == 0))
                 for i in range(6)]
        wait_for(lambda: running(server) + waiting(server) == 6)
        for sock in socks:
            sock.close()
        server.settle()


def test_leaving_at_the_end(serve):
    """When the last bytes are on their way there is nothing left to cancel."""
    with serve() as server:
        for _ in range(50):
            for stream in (True, False):
                sock = server.send(PATHS["chat"], asked("chat", "Hi", stream))
                read_until(sock, b"data: " if stream else b"HTTP")
                reset(sock)
        server.settle()
        server.ok(PATHS["chat"], bodies()["chat"])


def test_a_storm_of_leavers(serve):
    rng = random.Random(7)
    with serve("--max-sequences", 16, "--max-queue", 400) as server:
        server.ok(PATHS["chat"], bodies()["chat"])
        wait_for(lambda: server.stats()["requests"]["running"] == 0)
        before = server.files()
        for _ in range(3):
            socks = []
            for _ in range(100):
                protocol = rng.choice(list(PATHS))
                text = rng.choice(["Write slowly.", "Write forever.", "Hi", "x" * 5000])
                data = raw("POST", PATHS[protocol],
                           dump(asked(protocol, text, rng.random() < 0.7)))
                sock = server.socket()
                # Some leave within their request.
                sock.sendall(data if rng.random() < 0.8 else data[:rng.randrange(len(data))])
                socks.append(sock)
            rng.shuffle(socks)
            for sock in socks:
                leave(sock, rng.choice(["close", "reset"]))
        server.settle()
        wait_for(lambda: server.files() <= before, lambda: (server.files(), before))
        for protocol, body in bodies().items():
            assert text_of(protocol, server.ok(PATHS[protocol], body).json) == ("", "Fine.")


def test_a_reader_that_stops_is_dropped(serve):
    """And those that read get all they asked for meanwhile."""
    with serve("--max-buffer-bytes", 100_000, "--write-timeout", 1) as server:
        sock = server.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(raw("POST", PATHS["chat"], dump(asked("chat", "Write forever.", True))))
        read_until(sock, b"data: ")
        others = at_once(4, lambda i: server.ok(
            PATHS["chat"], {**bodies("Write forever.", tokens=300)["chat"], "stream": True}))
        texts = {text_of("chat", answer.events) for answer in others}
        assert len(texts) == 1
        server.settle()
        assert server.stats()["tokens"]["generated"] < PLENTY
        wait_for(lambda: server.metric("kuruma_client_disconnects_total") == 1)
        sock.close()


def test_a_full_queue(serve):
    with serve("--max-sequences", 1, "--max-queue", 2) as server:
        sock = server.send(PATHS["chat"], asked("chat", "Write slowly.", True))
        read_until(sock, b"~")
        queued = [server.send(PATHS["chat"], asked("chat", "Hi", True)) for _ in range(2)]
        wait_for(lambda: waiting(server) == 2)
        for protocol, body in bodies().items():
            for stream in (True, False):
                answer = server.post(PATHS[protocol], {**body, "stream": stream})
                assert_error(protocol, answer, 429)
                assert int(answer.headers["retry-after"]) > 0
                assert answer.json["error"]["type"] == "rate_limit_error"
        answer = server.post(PATHS["completions"], {"prompt": ["a", "b", "c"]})
        assert_error("completions", answer, 429)
        sock.close()
        for waiter in queued:
            read_until(waiter, b"[DONE]")
            waiter.close()
        server.settle()
        server.ok(PATHS["chat"], bodies()["chat"])


def test_comments_keep_a_waiting_stream_open(serve):
    with serve("--max-sequences", 1, "--sse-keep-alive", 0.05) as server:
        first = server.send(PATHS["chat"], asked("chat", "Write slowly.", True))
        read_until(first, b"~")
        second = server.send(PATHS["chat"], asked("chat", "Hi", True))
        read_until(second, b": keep-alive")
        first.close()
        read_until(second, b"[DONE]")
        second.close()


def test_failures_of_the_engine_reach_the_client(serve):
    lines = [{"match": "break", "text": "so far", "error": "the script says so"}]
    with serve(lines=lines) as server:
        for protocol in PATHS:
            body = bodies("Please break.")[protocol]
            answer = server.post(PATHS[protocol], body)
            assert answer.status == 500 and "error" in answer.json
            assert (answer.json.get("type") == "error") == (protocol == "messages")
            stream = server.post(PATHS[protocol], {**body, "stream": True})
            assert "the script says so" in stream.body.decode() or "error" in stream.body.decode()
            assert stream.status == 200
        server.settle()


# -------------------------------------------------------------------------------------- endings

def ended(server, code):
    assert server.wait() == code, server.log()[-2000:]


def test_sigterm_finishes_what_runs(serve):
    lines = [{"match": "slowly", "text": "one two three four five six seven eight nine ten",
              "delay_ms": 100}, {"text": "Fine."}]
    with serve(lines=lines) as server:
        body = {**bodies("Write slowly.", tokens=PLENTY)["chat"], "stream": True}
        stream = server.send(PATHS["chat"], body)
        whole = server.send(PATHS["messages"], asked("messages", "Write slowly.", False))
        # Its request is complete only after the signal.
        late = server.socket()
        late_body = dump(bodies()["chat"])
        late.sendall(raw("POST", PATHS["chat"], late_body)[:-5])
        idle = server.socket()
        idle.sendall(raw("GET", "/ready"))
        read_until(idle, b"ready")
        read_until(stream, b"data: ")
        server.process.send_signal(signal.SIGTERM)
        assert receive(idle) == b""
        late.sendall(late_body[-5:])
        refused = receive(late)
        assert refused.startswith(b"HTTP/1.1 503 ") and b"shutting down" in refused
        with pytest.raises(ConnectionRefusedError):
            server.socket()
        rest = receive(stream)
        assert b'"finish_reason":"stop"' in rest and b"data: [DONE]" in rest
        body = receive(whole).partition(b"\r\n\r\n")[2]
        assert json.loads(body)["content"][0]["text"].endswith("nine ten")
        ended(server, 0)
        for sock in (stream, whole, late, idle):
            sock.close()


def test_a_second_signal_ends_at_once(serve):
    with serve("--drain-timeout", 1000) as server:
        sock = server.send(PATHS["chat"], asked("chat", "Write slowly.", True))
        read_until(sock, b"~")
        server.process.send_signal(signal.SIGINT)
        wait_for(lambda: "signal 2" in server.log(), server.log)
        read_until(sock, b"~")
        server.process.send_signal(signal.SIGTERM)
        ended(server, -signal.SIGTERM)
        sock.close()


def test_the_drain_has_an_end(serve):
    with serve("--drain-timeout", 0.3) as server:
        socks = [server.send(PATHS["chat"], asked("chat", "Write slowly.", stream))
                 for stream in (True, False)]
        read_until(socks[0], b"~")
        wait_for(lambda: running(server) == 2)
        server.process.send_signal(signal.SIGTERM)
        for sock in socks:
            assert b"[DONE]" not in receive(sock)
            sock.close()
        ended(server, 0)
        assert "were cut" in server.log()


def test_ending_with_many_in_the_queue(serve):
    with serve("--max-sequences", 2, "--drain-timeout", 0) as server:
        socks = [server.send(PATHS["chat"], asked("chat", "Write slowly.", True))
                 for _ in range(30)]
        wait_for(lambda: running(server) + waiting(server) == 30)
        server.process.send_signal(signal.SIGTERM)
        ended(server, 0)
        for sock in socks:
            sock.close()


def test_reading_and_asking_while_it_ends(serve):
    """Whatever comes in the moment of the end is answered or cut, and the end comes."""
    with serve("--drain-timeout", 2) as server:
        stop = threading.Event()

        def knock(_):
            while not stop.is_set():
                try:
                    with server.socket() as sock:
                        sock.sendall(raw("POST", PATHS["chat"], dump(bodies()["chat"]),
                                         ["Connection: close"]))
                        data = receive(sock)
                        assert data == b"" or data[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 503")
                except OSError:
                    return

        timer = threading.Timer(0.5, lambda: server.process.send_signal(signal.SIGTERM))
        timer.start()
        at_once(8, knock)
        server.process.wait(TIMEOUT)
        stop.set()
        timer.join()
        ended(server, 0)
