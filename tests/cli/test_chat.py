"""kuruma chat: pipes, commands, tools, and a real terminal."""

import functools
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import time

import pytest
from support import BINARY, ROOT, ok, refused, run

TINY = ROOT / "models" / "tiny"
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def talk(*lines, flags=()):
    """Standard output of a chat from a pipe."""
    return ok("chat", "--quiet", *flags, stdin="".join(line + "\n" for line in lines))


@functools.cache
def endless():
    """Flags with which the answer to Hello is long enough to be interrupted."""
    for seed in range(40):
        flags = ("--temperature", 50, "--top-p", 1, "--seed", seed)
        done = run("chat", *flags, stdin="Hello\n")
        if int(re.search(r"answer (\d+) tokens", done.stderr)[1]) > 2500:
            return flags
    raise AssertionError("no seed gives a long answer")


def generated(body):
    """Content and reasoning of a body's answer, as `kuruma generate` writes them."""
    text = ok("generate", "--messages", "-", "--temperature", 0, "--quiet", "--max-tokens", 200,
              stdin=json.dumps(body)).removesuffix("\n")
    reasoning, mark, content = text.rpartition("</think>")
    return content, reasoning if mark else ""


def saved(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("think", ["off", "high"])
def test_every_answer_equals_one_from_nothing(tmp_path, think):
    """A chat goes on with the sequence it holds; `generate` reads each conversation anew."""
    file = tmp_path / "chat.json"
    talk("What does inspect do?", "12+30", "Hello", f"/save {file}", flags=("--think", think))
    body = saved(file)
    assert [m["role"] for m in body["messages"]] == ["user", "assistant"] * 3
    assert body["thinking"] == {"type": "disabled" if think == "off" else "enabled"}
    for i, message in enumerate(body["messages"]):
        if message["role"] == "assistant":
            content, reasoning = generated({**body, "messages": body["messages"][:i]})
            assert content == message["content"]
            assert reasoning == message.get("reasoning_content", "")
            assert (reasoning != "") == (think != "off")


def test_output_is_the_answers_alone():
    assert talk() == ""
    out = talk("Hello", "", "  ")
    assert out.endswith("\n") and out.count("\n") == 1
    done = run("chat", stdin="Hello\n")
    assert done.stdout == out
    assert re.fullmatch(r"\[prompt \d+ tokens, [\d.]+ tok/s; answer \d+ tokens, [\d.]+ tok/s; "
                        r"stop; seed \d+\]\n", done.stderr)
    assert ok("chat", "--quiet", "--prompt", "Hello") == out
    assert "\x1b" not in talk("Hello", flags=("--think", "high"))


def test_settings(tmp_path):
    file = tmp_path / "chat.json"
    out = talk("/system Be brief.", "/system", "/think max", "/seed 7", "Hello", f"/save {file}",
               "/reset", "/think off", "/seed off", f"/save {file}.2", "/quit", "never read")
    assert "Be brief.\n" in out and "never read" not in out
    body = saved(file)
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["seed"] == 7 and body["reasoning_effort"] == "max"
    assert len(body["messages"]) == 3 and body["messages"][2]["reasoning_content"]
    again = saved(tmp_path / "chat.json.2")
    assert again["messages"] == body["messages"][:1] and "seed" not in again
    assert again["thinking"] == {"type": "disabled"}


def test_help_names_every_command():
    out = talk("/help")
    for command in "/help /reset /system /think /tools /save /seed /quit".split():
        assert re.search(rf"^  {command} ", out, re.MULTILINE), command


def test_seeds_decide():
    flags = ("--temperature", 2, "--max-tokens", 20)
    one = talk("Hello", flags=(*flags, "--seed", 1))
    assert talk("/seed 1", "Hello", flags=flags).endswith(one)
    assert talk("Hello", flags=(*flags, "--seed", 1, "--threads", 1, "--chunk", 1)) == one
    assert len({talk("Hello", flags=(*flags, "--seed", seed)) for seed in range(4)}) > 1


def test_lines_that_go_on_and_slashes(tmp_path):
    file = tmp_path / "chat.json"
    talk("one\\", "two", "//help", f"/save {file}")
    assert [m["content"] for m in saved(file)["messages"][::2]] == ["one\ntwo", "/help"]


def test_tool_calls(tmp_path):
    tools, file = tmp_path / "tools.json", tmp_path / "chat.json"
    tools.write_text(json.dumps(TOOLS))
    out = talk("What is the weather in Paris?", "sunny, 21 degrees", f"/save {file}",
               flags=("--tools", tools))
    assert out.startswith('get_weather({"city": "Paris"})\n')
    body = saved(file)
    user, call, result, answer = body["messages"]
    assert body["tools"] == TOOLS
    assert call["tool_calls"][0]["function"] == {"name": "get_weather",
                                                 "arguments": '{"city": "Paris"}'}
    assert result == {"role": "tool", "content": "sunny, 21 degrees",
                      "tool_call_id": call["tool_calls"][0]["id"]}
    assert generated({**body, "messages": body["messages"][:3]})[0] == answer["content"]
    # An empty line gives up waiting: the next one is a message.
    talk(f"/tools {tools}", "What is the weather in Paris?", "", "Hello", f"/save {file}")
    assert [m["role"] for m in saved(file)["messages"]] == ["user", "assistant"] * 2


def test_wrong_input_ends_a_piped_chat(tmp_path):
    for line, words in [("/nope", ["/nope", "/help"]), ("/think hard", ["hard", "low"]),
                        ("/seed x", ["/seed", '"x"']), ("/save", ["/save"]),
                        ("/reset now", ["/reset"]), (f"/tools {tmp_path}/none", ["none"]),
                        (f"/save {tmp_path}/no/file", ["no/file"])]:
        refused("chat", words=words, stdin=line + "\n")
    wrong = tmp_path / "tools.json"
    for text, word in [("{", "JSON"), ("{}", "list"), ('[{"type":"x"}]', "type")]:
        wrong.write_text(text)
        refused("chat", "--tools", wrong, words=["tools.json", word])
    refused("chat", "--think", "hard", words=["hard"])
    refused("chat", "--model", tmp_path / "none", words=["none"])
    refused("chat", "--temperature", -1, words=["temperature"], stdin="Hello\n")
    refused("chat", words=["4096", "context"], stdin="word " * 5000 + "\n")
    refused("chat", "--max-tokens", 5000, words=["4096"], stdin="Hello\n")


# --------------------------------------------------------------------------------------- terminal


class Terminal:
    """A chat on a pseudo-terminal."""

    def __init__(self, home, *flags, **environment):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            env = {**os.environ, "HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8",
                   **environment}
            env.pop("XDG_STATE_HOME", None)
            os.execve(BINARY, [BINARY, "chat", *map(str, flags)], env)
        self.seen = ""

    def send(self, text):
        os.write(self.file, text.encode())

    def wait(self, pattern, seconds=30):
        """Reads until `pattern` is found; what was read up to its end is used up."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            assert time.monotonic() < end, (pattern, self.seen)
            if select.select([self.file], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.file, 65536).decode(errors="replace")
                except OSError:  # the program ended
                    assert re.search(pattern, self.seen, re.DOTALL), (pattern, self.seen)
        used, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return used

    def leave(self):
        """The exit status after Ctrl-D, which must work from the moment the prompt is seen."""
        self.wait("> ")
        self.send("\x04")
        status = self.close()
        return self.kill() if status is None else status

    def close(self, seconds=20):
        """The exit status of the program when it has ended by itself; None: it has not."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.file)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.file], [], [], 0.05)[0]:
                try:
                    os.read(self.file, 65536)
                except OSError:
                    pass
        return None

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("the chat did not end")


def test_terminal_editing_and_history(tmp_path):
    chat = Terminal(tmp_path)
    assert "/help" in chat.wait("leaves")
    chat.wait("> ")
    chat.send("Hellp\x7fo\r")
    used = chat.wait(r"seed \d+\]")
    assert "Hello! How can I help you?" in used
    chat.wait("> ")
    chat.send("\x1b[A\r")  # arrow up: the line before
    assert "How can I help you?" in chat.wait(r"seed \d+\]")
    chat.wait("> ")
    chat.send("日本語\r")
    chat.wait(r"seed \d+\]")
    chat.wait("> ")
    chat.send("/nope\r")
    chat.wait("unknown command /nope")
    assert chat.leave() == 0
    history = tmp_path / ".local" / "state" / "kuruma" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "Hello" in history.read_text()
    again = Terminal(tmp_path)
    again.wait("> ")
    again.send("\x1b[A\x1b[A\x1b[A\r")
    again.wait(r"seed \d+\]")
    again.wait("> ")
    again.send("/quit\r")
    assert again.close() == 0


def test_terminal_colours(tmp_path):
    for environment, dim in (({}, True), ({"NO_COLOR": "1"}, False)):
        chat = Terminal(tmp_path, "--think", "high", "--prompt", "Hello", **environment)
        used = chat.wait(r"seed \d+\]")
        assert ("\x1b[2m" in used) == dim
        assert chat.leave() == 0


def test_terminal_interrupts(tmp_path):
    chat = Terminal(tmp_path, *endless())
    chat.wait("> ")
    time.sleep(0.5)  # the editor shows its prompt a moment before it takes the terminal over
    chat.send("half a line\x03")
    chat.wait(r"\^C")
    chat.wait("> ")
    chat.send("Hello\r")
    time.sleep(0.3)
    chat.send("\x03")
    assert "interrupted" in chat.wait(r"seed \d+\]")
    chat.wait("> ")
    chat.send("/seed 3\r")
    chat.wait("Seed: 3")
    assert chat.leave() == 0


def test_interrupt_in_a_pipe():
    process = subprocess.Popen([BINARY, "chat", *map(str, endless()), "--quiet", "--prompt", "Hello"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_a_reader_that_goes_away():
    process = subprocess.Popen([BINARY, "chat", *map(str, endless()), "--prompt", "Hello"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=30) == 2
