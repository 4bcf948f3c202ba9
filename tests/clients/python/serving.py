"""Runs `kuruma serve` for tests of clients. Standard library only."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODEL = ROOT / "models" / "tiny"
BINARY = os.environ.get("KURUMA_BINARY") or str(
    pathlib.Path(os.environ.get("KURUMA_BINARY_DIR", ROOT / "build" / "release")) / "kuruma")
PATIENCE_S = 60  # for what must happen; only a broken server needs it all


def call(name, **arguments):
    """A tool call as the model writes it."""
    parameters = "".join(
        f'<｜DSML｜ parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
        f"{value if isinstance(value, str) else json.dumps(value)}</｜DSML｜ parameter>\n"
        for key, value in arguments.items())
    return f'<｜DSML｜ invoke name="{name}">\n{parameters}</｜DSML｜ invoke>\n'


def calls(*written):
    return "\n\n<｜DSML｜ calls>\n" + "".join(written) + "</｜DSML｜ calls>"


WEATHER_CALL = calls(call("get_weather", city="Kyoto", days=2))

# The first line whose `match` is somewhere in the prompt counts, so what comes late in a
# conversation stands before what began it.
SCRIPT = [
    {"match": "18 degrees", "text": "The tool says 18.</think>It is 18 degrees in Kyoto."},
    {"match": "Question W", "text": "I need the tool.</think>Let me look." + WEATHER_CALL},
    {"match": "Question 2", "text": "</think>" + calls(call("get_weather", city="Kyoto", days=1),
                                                       call("get_weather", city="Oslo", days=1))},
    {"match": "Question E", "text": "A thought.</think>" + "Begun", "error": "the script broke"},
    {"match": "Question F", "text": "", "error": "the script broke"},
    {"match": "Question S", "text": "A thought.</think>One, two, STOP, three."},
    {"match": "Question L", "text": "tick ", "repeat": True, "delay_ms": 5},
    {"match": "Question P", "text": " and so on."},
    {"match": "Question U", "text": "Kanji?</think>車は速い 🚗 – 100 km/h."},
    {"match": "", "text": "The user greets me.</think>Hello! How can I help?"},
]


def wait_for(condition, what):
    """Until `condition()` is true; its value."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {PATIENCE_S} s")


class Server:
    """A server on a port of its own; `script`: lines that answer instead of the bundled model."""

    def __init__(self, *options, script=None, headers=()):
        self.headers = dict(headers)  # of this class's own requests
        command = [BINARY, "serve", "--model", str(MODEL), "--port", "0", "--access-log", "false"]
        self.files = tempfile.TemporaryDirectory()
        if script is not None:
            path = pathlib.Path(self.files.name) / "script.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in script))
            command += ["--scripted", str(path)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KURUMA")}
        self.errors = open(pathlib.Path(self.files.name) / "stderr", "w+")
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env=environment)
        self.url = self._ready()

    def _ready(self):
        for line in self.process.stdout:
            found = re.match(r"\s*ready\s+(http\S+)", line)
            if found:
                return found.group(1)
        self.errors.seek(0)
        raise AssertionError(f"{BINARY} serve: {self.errors.read()}")

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers=self.headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def stats(self):
        return json.loads(self.get("/stats"))["requests"]

    def posts(self):
        """POST requests so far, refused ones too."""
        found = re.search(r'kuruma_http_requests_total\{method="POST"\} (\d+)',
                          self.get("/metrics"))
        return int(found.group(1)) if found else 0

    def wait_idle(self):
        wait_for(lambda: self.stats()["running"] + self.stats()["waiting"] == 0, "an idle server")

    def stop(self):
        """Ends it; it must end by itself and without an error."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.errors.close()
            self.files.cleanup()
        assert code == 0, f"kuruma serve ended with {code}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
