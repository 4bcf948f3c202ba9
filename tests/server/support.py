"""Starts `kuruma serve` and talks to it. Standard library only."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "frontend"
BINARY = os.environ.get("KURUMA_BINARY") or str(
    pathlib.Path(os.environ.get("KURUMA_BINARY_DIR", ROOT / "build" / "release")) / "kuruma")
TOKENIZER = ROOT / "build" / "data" / "tokenizer.json"

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions",
         "messages": "/v1/messages", "responses": "/v1/responses"}
TIMEOUT = 120  # seconds: longer than anything here takes, so that a hang is a failure

USER = [{"role": "user", "content": "Hi"}]


def bodies(text="Hi", tokens=8, think=False):
    """A body for each protocol that asks the same; Completions gets the text alone."""
    user = [{"role": "user", "content": text}]
    thinking = {"type": "enabled" if think else "disabled"}
    return {
        "chat": {"messages": user, "max_tokens": tokens, "thinking": thinking},
        "completions": {"prompt": text, "max_tokens": tokens},
        "messages": {"messages": user, "max_tokens": tokens, "thinking": thinking},
        "responses": {"input": text, "max_output_tokens": tokens,
                      "reasoning": {"effort": "high" if think else "none"}},
    }


class Answer:
    """Status, headers (names in lower case) and body of an answer."""

    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers}

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """What each server-sent event holds, "[DONE]" as a string. The form is checked."""
        assert self.headers["content-type"].startswith("text/event-stream"), self.headers
        text = self.body.decode()
        assert text.endswith("\n\n"), text[-100:]
        events = []
        for block in text[:-2].split("\n\n"):
            lines = [line for line in block.split("\n") if not line.startswith(":")]
            if not lines:
                continue
            name = lines.pop(0)[len("event: "):] if lines[0].startswith("event: ") else None
            assert len(lines) == 1 and lines[0].startswith("data: "), block
            data = lines[0][len("data: "):]
            event = data if data == "[DONE]" else json.loads(data)
            if name is not None:
                assert event["type"] == name, block
            events.append(event)
        return events


def dump(body):
    return body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=TIMEOUT)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self.path)


class Server:
    """A running server; ended by the end of the `with` block, which checks how it ends."""

    def __init__(self, *args, env=None, key=None):
        self.args, self.key = [str(arg) for arg in args], key
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("KURUMA_")}
        self.env.update(env or {})
        self.port, self.unix, self.context = None, None, None
        self.exit_code = None

    def __enter__(self):
        self.log_file = tempfile.TemporaryFile()
        self.process = subprocess.Popen([BINARY, "serve", "--port", "0", *self.args],
                                        stdout=subprocess.PIPE, stderr=self.log_file,
                                        env=self.env)
        lines = []
        for line in self.process.stdout:
            lines.append(line.decode())
            if lines[-1].startswith("  ready"):
                break
        self.summary = "".join(lines)
        if not lines or not lines[-1].startswith("  ready"):
            self.process.wait()
            raise AssertionError((self.args, self.summary, self.log()))
        self.url = lines[-1].split()[1]
        if self.url.startswith("unix:"):
            self.unix = self.url[len("unix:"):]
        else:
            self.port = int(self.url.rsplit(":", 1)[1])
        return self

    def __exit__(self, kind, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = "still running"
        self.process.stdout.close()
        log = self.log()
        self.log_file.close()
        if kind is None and self.exit_code is None:
            assert code == 0, (code, log[-3000:])
        assert "ERROR: AddressSanitizer" not in log and "runtime error" not in log, log[-5000:]

    def log(self):
        self.log_file.seek(0)
        return self.log_file.read().decode(errors="replace")

    def wait(self):
        """For the end of a process that a test ends itself."""
        self.exit_code = self.process.wait(TIMEOUT)
        return self.exit_code

    # ------------------------------------------------------------------------------- requests

    def connection(self):
        if self.unix:
            return UnixConnection(self.unix)
        if self.context:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT,
                                               context=self.context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)

    def ask(self, method, path, body=None, headers=None, connection=None):
        own = connection is None
        connection = connection or self.connection()
        headers = dict(headers or {})
        if self.key and not {"Authorization", "x-api-key"} & set(headers):
            headers["Authorization"] = "Bearer " + self.key
        connection.request(method, path, None if body is None else dump(body), headers)
        response = connection.getresponse()
        answer = Answer(response.status, response.getheaders(), response.read())
        if own:
            connection.close()
        return answer

    def get(self, path, **kwargs):
        return self.ask("GET", path, **kwargs)

    def post(self, path, body, **kwargs):
        return self.ask("POST", path, body, **kwargs)

    def ok(self, path, body=None, **kwargs):
        answer = self.get(path, **kwargs) if body is None else self.post(path, body, **kwargs)
        assert answer.status == 200, (path, answer.status, answer.body[:2000])
        return answer

    def socket(self):
        """A bare connection, for what no client library sends."""
        if self.unix:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(TIMEOUT)
            sock.connect(self.unix)
            return sock
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def send(self, path, body):
        """A bare connection on which a request was sent whole."""
        sock = self.socket()
        sock.sendall(raw("POST", path, dump(body)))
        return sock

    # ---------------------------------------------------------------------------------- state

    def stats(self):
        return self.ok("/stats").json

    def metric(self, name):
        """The sum over the labels of a metric."""
        values = [float(line.rsplit(" ", 1)[1])
                  for line in self.ok("/metrics").body.decode().splitlines()
                  if line.startswith((name + " ", name + "{"))]
        assert values, name
        return sum(values)

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def settle(self):
        """Waits until nothing runs and checks that nothing is held."""
        wait_for(lambda: idle(self.stats()), lambda: self.stats())


def idle(stats):
    return (stats["requests"]["running"] == stats["requests"]["waiting"] == 0
            and stats["blocks"]["in_use"] == 0)


def wait_for(condition, explain=lambda: "", seconds=TIMEOUT):
    """Returns when `condition` is true; fails when it does not become so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, explain()
        time.sleep(0.01)


def raw(method, path, body=b"", headers=()):
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def receive(sock):
    """Everything up to the end of the connection."""
    data, deadline = b"", time.monotonic() + TIMEOUT
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while piece := sock.recv(1 << 16):
            assert time.monotonic() < deadline, data[-1000:]
            data += piece
    return data


def read_until(sock, end):
    data, deadline = b"", time.monotonic() + TIMEOUT
    while end not in data:
        assert time.monotonic() < deadline, data[-1000:]
        piece = sock.recv(1 << 16)
        assert piece, data
        data += piece
    return data


def answers_of(data):
    """Every answer in what a connection received; only those with Content-Length."""
    answers = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = [line.split(": ", 1) for line in lines[1:]]
        length = int({k.lower(): v for k, v in headers}.get("content-length", 0))
        answers.append(Answer(int(lines[0].split()[1]), headers, rest[:length]))
        data = rest[length:]
    return answers


def at_once(count, work):
    """work(0) ... work(count - 1) in threads of their own; results in order."""
    results, errors = [None] * count, []

    def run(i):
        try:
            results[i] = work(i)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append((i, error))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise AssertionError(errors[0]) from errors[0][1]
    return results


# ------------------------------------------------------------------------------------- answers

def text_of(protocol, answer):
    """(reasoning, text) of a whole answer or of a stream's events."""
    return whole_text(protocol, answer) if isinstance(answer, dict) else stream_text(protocol,
                                                                                     answer)


def whole_text(protocol, body):
    if protocol == "chat":
        message = body["choices"][0]["message"]
        return message.get("reasoning_content", ""), message["content"]
    if protocol == "completions":
        return "", body["choices"][0]["text"]
    parts = {"thinking": "", "text": ""}
    if protocol == "messages":
        for block in body["content"]:
            parts[block["type"]] += block[block["type"]]
    else:
        for item in body["output"]:
            kind = "thinking" if item["type"] == "reasoning" else "text"
            parts[kind] += "".join(part["text"] for part in item["content"])
    return parts["thinking"], parts["text"]


def stream_text(protocol, events):
    reasoning = text = ""
    for event in events:
        if protocol in ("chat", "completions"):
            for choice in [] if event == "[DONE]" else event["choices"]:
                delta = choice.get("delta", choice)
                reasoning += delta.get("reasoning_content", "")
                text += delta.get("content", "") + delta.get("text", "")
        elif event["type"] == "content_block_delta":
            reasoning += event["delta"].get("thinking", "")
            text += event["delta"].get("text", "")
        elif event["type"] == "response.reasoning_text.delta":
            reasoning += event["delta"]
        elif event["type"] == "response.output_text.delta":
            text += event["delta"]
    return reasoning, text


def usage_of(protocol, body):
    """(prompt tokens, those of them found in the cache, tokens of the answer); sums are checked."""
    usage = body["usage"]
    if protocol == "messages":
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached, usage["output_tokens"]
    if protocol == "responses":
        assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
        return (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"],
                usage["output_tokens"])
    prompt, cached = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    assert prompt + usage["completion_tokens"] == usage["total_tokens"]
    assert usage["prompt_cache_hit_tokens"] == cached
    assert usage["prompt_cache_miss_tokens"] == prompt - cached
    return prompt, cached, usage["completion_tokens"]


def assert_error(protocol, answer, status=None):
    """A refusal in the protocol's form; returns its message."""
    assert 400 <= answer.status < 500, (answer.status, answer.body[:500])
    if status is not None:
        assert answer.status == status, (answer.status, answer.body[:500])
    assert answer.headers["content-type"] == "application/json"
    body = answer.json
    if protocol == "messages":
        assert set(body) == {"type", "error"} and body["type"] == "error", body
        assert set(body["error"]) == {"type", "message"}, body
    else:
        assert set(body) == {"error"}, body
        assert set(body["error"]) == {"message", "type", "param", "code"}, body
    assert isinstance(body["error"]["message"], str) and body["error"]["message"], body
    return body["error"]["message"]


# ------------------------------------------------------------------------------------- scripts

def write_script(folder, *lines):
    path = pathlib.Path(folder) / "script.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


SLOW = {"match": "slowly", "text": "~", "repeat": True, "delay_ms": 10}
LATE = {"match": "later", "text": "done", "first_delay_ms": 600_000}
FAST = {"match": "forever", "text": "a long line of words that goes on and ", "repeat": True}
PLAIN = {"text": "Fine."}


def run(*args, stdin="", env=None):
    """A finished process of the program."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("KURUMA_")}
    return subprocess.run([BINARY, *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=TIMEOUT, check=False, env={**clean, **(env or {})})


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]
