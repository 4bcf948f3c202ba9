"""A server that serves the files of the page and answers as scripted. Standard library only."""

import http.server
import json
import pathlib
import queue
import threading

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src" / "server" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
# The policy of the real server, and beyond it: no script may give a string to a markup sink.
POLICY = ("default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
          "require-trusted-types-for 'script'")
USAGE = {"prompt_tokens": 1200, "completion_tokens": 3, "total_tokens": 1203,
         "prompt_tokens_details": {"cached_tokens": 1024},
         "completion_tokens_details": {"reasoning_tokens": 1}}


class Gate:
    """A step of a script: what follows is sent when the test opens it."""

    def __init__(self):
        self._event = threading.Event()

    def open(self):
        self._event.set()

    def wait(self):
        self._event.wait(30)


class Break:
    """A step of a script: the connection ends here. As a script: before anything was said."""


def event(delta, finish=None):
    return "data: " + json.dumps({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, ensure_ascii=False) + "\n\n"


def ending(finish="stop", usage=None):
    return event({}, finish) + "data: " + json.dumps(
        {"id": "chatcmpl-1", "choices": [], "usage": usage or USAGE}) + "\n\ndata: [DONE]\n\n"


def says(*texts, usage=None):
    """A script whose answer is these texts."""
    return [event({"role": "assistant", "content": ""}), *(event({"content": text}) for text in texts),
            ending(usage=usage)]


class Refusal:
    def __init__(self, status, message, **headers):
        self.status, self.message = status, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Server:
    """`scripts` holds an answer for each chat request: a list of texts, bytes, Gate and Break, or a
    Refusal, or a Break. `requests` holds what was asked, `gone` is set when a reader went away."""

    def __init__(self):
        self.scripts, self.requests, self.gone = [], [], threading.Event()
        self.key = None
        self.stats = queue.Queue()
        self.last_stats = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.get(self)

            def do_POST(self):
                outer.post(self)

        class Http(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # browsers drop connections

        self._http = Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()

    def reply(self, handler, status, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    def error(self, handler, status, message, **headers):
        self.reply(handler, status, {"error": {"message": message, "type": "t", "param": None,
                                               "code": "c"}}, **headers)

    def allowed(self, handler):
        if self.key is None or handler.headers.get("Authorization") == f"Bearer {self.key}":
            return True
        self.error(handler, 401, "An API key is needed.")
        return False

    def get(self, handler):
        path = handler.path.split("?")[0]
        if path in ("/v1/models", "/stats"):
            if not self.allowed(handler):
                return
            if path == "/v1/models":
                self.reply(handler, 200, {"object": "list", "data": [{"id": "tiny"}, {"id": "other"}]})
                return
            if not self.stats.empty():
                self.last_stats = self.stats.get()
            self.reply(handler, 200 if self.last_stats else 503, self.last_stats or {})
            return
        file = PAGE / ("index.html" if path == "/" else path[1:])
        if file.parent != PAGE or file.suffix not in TYPES or not file.is_file():
            self.error(handler, 404, "Not found.")
            return
        self.reply(handler, 200, file.read_bytes(), TYPES[file.suffix],
                   **{"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"})

    def post(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        if not self.allowed(handler):
            return
        self.requests.append(body)
        script = self.scripts.pop(0) if self.scripts else Refusal(500, "The test has no answer left.")
        if isinstance(script, Break):
            handler.close_connection = True
            return
        if isinstance(script, Refusal):
            self.error(handler, script.status, script.message, **script.headers)
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            for step in script:
                self.play(handler, step)
            handler.wfile.write(b"0\r\n\r\n")
        except (OSError, ConnectionAbortedError):
            handler.close_connection = True
            self.gone.set()

    def play(self, handler, step):
        if isinstance(step, Gate):
            step.wait()
        elif isinstance(step, Break):
            raise ConnectionAbortedError
        else:
            data = step if isinstance(step, bytes) else step.encode()
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            handler.wfile.flush()


def stats(**changes):
    """What /stats says; `changes` are paths with __ between the names."""
    value = {"model": "tiny", "version": "0.1.0", "uptime_s": 3700,
             "requests": {"running": 2, "waiting": 1, "finished": 40, "failed": 3},
             "tokens": {"prompt": 1000, "cached": 400, "generated": 5000},
             "steps": 100, "rows": 800, "blocks": {"total": 512, "in_use": 128},
             "memory": {"resident_bytes": 300 << 20}, "preemptions": 7, "idle_share": 0.25,
             "ttft_ms": {"p50": 120.0, "p99": 480.0}, "itl_ms": {"p50": 12.5, "p99": 30.0}}
    for path, new in changes.items():
        *folders, name = path.split("__")
        place = value
        for folder in folders:
            place = place[folder]
        place[name] = new
    return value
