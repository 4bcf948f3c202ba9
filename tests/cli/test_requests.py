"""kuruma generate --requests: many requests through the engine, and none of them notices."""

import json
import random
import signal
import subprocess
import time

import pytest
import support
from support import BINARY, copy_with_tokenizer, json_lines, ok, refused, run

NANO = support.checkpoint("nano")
TINY = support.ROOT / "models" / "tiny"


def generate(model, requests, *flags, digest=True):
    text = "".join(json.dumps(r) + "\n" for r in requests)
    extra = ("--digest",) if digest else ()
    return json_lines(ok("generate", "--model", model, "--requests", "-", "--json", "--quiet",
                         *extra, *flags, stdin=text))


def proof(results):
    return [(r["tokens"], r["finish"], r["digest"]) for r in results]


def mix(vocab):
    """Prompts around block boundaries that share beginnings, greedy and drawn."""
    draw = random.Random(5)
    base = [draw.randrange(3, vocab) for _ in range(400)]
    requests = []
    for number, length in enumerate([1, 3, 126, 127, 128, 129, 130, 254, 255, 256, 257, 258, 300,
                                     384, 385, 20]):
        request = {"id": f"r{number}", "tokens": base[:length], "max_tokens": 3 + number % 7,
                   "seed": number, "temperature": number % 2, "ignore_eos": True}
        if number % 4 == 3:
            request["tokens"] = request["tokens"][:-1] + [7]
        if number % 5 == 0:
            request["priority"] = 1
        requests.append(request)
    return requests


@pytest.mark.parametrize("model, vocab", [(NANO, 256), (TINY, 1500)])
def test_nothing_around_a_request_changes_a_bit(model, vocab):
    requests = mix(vocab)
    expected = [generate(model, [r], "--no-prefix-cache", "--sync", "--threads", 1)[0]
                for r in requests]
    for flags in [("--max-sequences", 32), ("--sync",), ("--max-step-tokens", 32),
                  ("--no-prefix-cache", "--max-step-tokens", 61), ("--threads", 1),
                  ("--chaos", 3, "--max-sequences", 6), ("--chaos", 4, "--snapshot-memory", "0"),
                  ("--prefill", "full"), ("--max-sequences", 3, "--kv-memory", "64KiB")]:
        results = generate(model, requests * 2, *flags)
        assert proof(results) == proof(expected) * 2, flags
        assert [r["id"] for r in results] == [r["id"] for r in requests] * 2
        cached = sum(r["cached_tokens"] for r in results)
        assert (cached > 0) == ("--no-prefix-cache" not in flags), flags


def test_shape_order_and_defaults(tmp_path):
    model = copy_with_tokenizer("nano", tmp_path)
    file = tmp_path / "batch.jsonl"
    file.write_text('{"prompt": "sea", "max_tokens": 30, "ignore_eos": true}\n\n'
                    '{"id": {"a": 1}, "tokens": [5], "max_tokens": 2, "ignore_eos": true}\n'
                    '{"id": 7, "tokens": [5], "seed": 3}\r\n')
    flags = ("generate", "--model", model, "--requests", file, "--quiet")
    results = json_lines(ok(*flags, "--json", "--digest", "--max-tokens", 5))
    assert [r["id"] for r in results] == [0, {"a": 1}, 7]
    assert list(results[0]) == ["id", "tokens", "text", "finish", "cached_tokens", "preemptions",
                                "digest", "prompt_tokens", "seed"]
    assert [len(r["tokens"]) for r in results[:2]] == [30, 2]
    assert results[0]["prompt_tokens"] == 4 and results[0]["finish"] == "length"
    assert 1 <= len(results[2]["tokens"]) <= 5 and results[2]["seed"] == 3
    assert len(results[0]["digest"]) == 64
    assert "digest" not in json_lines(ok(*flags, "--json"))[0]
    text = ok(*flags, "--seed", 1, "--temperature", 0)
    assert text.startswith("== 0 (length)\n") and "\n== {\"a\":1} (length)\n" in text
    done = run("generate", "--model", model, "--requests", file)
    assert "3 requests" in done.stderr and "tok/s" in done.stderr


def test_flags_are_defaults_and_seeds_are_drawn_per_line():
    flags = ("--temperature", 2, "--max-tokens", 8)
    one = {"tokens": [1, 2, 3], "ignore_eos": True}
    first, second, greedy = generate(NANO, [one, one, one | {"temperature": 0}], *flags)
    assert first["seed"] != second["seed"] and first["tokens"] != second["tokens"]
    again = generate(NANO, [one | {"seed": first["seed"]}], *flags)[0]
    assert again["tokens"] == first["tokens"] and again["digest"] == first["digest"]
    assert greedy["tokens"] == generate(NANO, [one], "--temperature", 0, "--max-tokens", 8,
                                        "--seed", 4)[0]["tokens"]


def test_samples_of_one_request():
    request = {"tokens": list(range(3, 203)), "max_tokens": 6, "n": 4, "seed": 9,
               "temperature": 1, "ignore_eos": True}
    result = generate(NANO, [request])[0]
    samples = result["samples"]
    assert [s["index"] for s in samples] == [0, 1, 2, 3]
    assert samples[0]["tokens"] == result["tokens"] and samples[0]["digest"] == result["digest"]
    assert len({tuple(s["tokens"]) for s in samples}) == 4
    assert samples[3]["cached_tokens"] == 128
    single = generate(NANO, [request | {"n": 1}], "--no-prefix-cache")[0]
    assert single["tokens"] == result["tokens"] and single["digest"] == result["digest"]


def test_stops(tmp_path):
    model = copy_with_tokenizer("nano", tmp_path)
    base = {"prompt": "abc", "temperature": 0, "max_tokens": 24, "ignore_eos": True}
    whole = generate(model, [base])[0]
    stop = whole["text"][5:8]
    token = whole["tokens"][4]
    by_text, by_token, late = generate(
        model, [base | {"stop": ["never seen", stop]}, base | {"stop_token_ids": [token]},
                base | {"stop_token_ids": [token], "min_tokens": 9}])
    assert by_text["text"] == whole["text"][:whole["text"].index(stop)]
    assert by_text["finish"] == "stop" and len(by_text["tokens"]) < 24
    assert by_token["tokens"] == whole["tokens"][:whole["tokens"].index(token) + 1]
    assert token not in late["tokens"][:8]


def test_the_bundled_model_answers_messages():
    messages = [{"role": "user", "content": "What does inspect do?"}]
    lines = [{"id": i, "messages": messages, "temperature": 0, "max_tokens": 60}
             for i in range(5)]
    results = generate(TINY, lines, "--max-sequences", 2)
    assert len({r["text"] for r in results}) == 1 and results[0]["finish"] == "stop"
    assert results[4]["cached_tokens"] % 128 == 0


def test_a_timeout_ends_with_what_there_is():
    request = {"tokens": [1, 2], "max_tokens": 4000, "ignore_eos": True}
    results = generate(NANO, [request | {"timeout": 0.3}, request | {"max_tokens": 3},
                              request | {"timeout": 0}])
    assert [r["finish"] for r in results] == ["deadline", "length", "deadline"]
    assert 0 < len(results[0]["tokens"]) < 4000 and results[2]["tokens"] == []


def test_broken_numbers_end_their_request_alone(tmp_path):
    model = support.copy_of("nano", tmp_path)
    path = support.shard_of(model, "embed.weight")
    header, data = support.split(path)
    begin, end = header["embed.weight"]["data_offsets"]
    row = (end - begin) // header["embed.weight"]["shape"][0]
    at = begin + 77 * row
    support.join(path, header, data[:at] + b"\xff" * row + data[at + row:])
    requests = [{"tokens": [1, 2, 3], "max_tokens": 9, "seed": 1, "ignore_eos": True},
                {"tokens": [1, 77, 3], "max_tokens": 9, "seed": 1, "ignore_eos": True}]
    text = "".join(json.dumps(r) + "\n" for r in requests * 2)
    done = run("generate", "--model", model, "--requests", "-", "--json", "--digest", "--quiet",
               stdin=text)
    assert done.returncode == 1
    good, bad, good2, bad2 = json_lines(done.stdout)
    assert good["finish"] == good2["finish"] == "length"
    alone = generate(NANO, requests[:1])[0]
    assert good["tokens"] == alone["tokens"] and good["digest"] == alone["digest"]
    for result in (bad, bad2):
        assert result["finish"] == "failed" and result["tokens"] == []
        assert "step" in result["error"] and "layer 0" in result["error"]


@pytest.mark.parametrize("line, words", [
    ("{", ["standard input:2", "JSON"]),
    ("[]", ["standard input:2"]),
    ("{}", ["'prompt'", "'messages'", "'tokens'"]),
    ('{"tokens": [1], "prompt": "x"}', ["one of"]),
    ('{"tokens": []}', ["standard input:2", "'tokens'"]),
    ('{"tokens": [256]}', ["'tokens'", "256"]),
    ('{"tokens": "abc"}', ["'tokens'"]),
    ('{"prompt": "x"}', ["tokenizer.json"]),
    ('{"messages": [{"role": "user", "content": "x"}]}', ["tokenizer.json"]),
    ('{"tokens": [1], "temperature": -1}', ["standard input:2", "temperature"]),
    ('{"tokens": [1], "top_p": "x"}', ["top_p"]),
    ('{"tokens": [1], "max_tokens": 0}', ["max_tokens"]),
    ('{"tokens": [1], "n": 0}', ["n"]),
    ('{"tokens": [1], "stop": "x"}', ["stop", "tokenizer.json"]),
    ('{"tokens": [1], "timeout": -1}', ["timeout"]),
    ('{"tokens": [1], "priority": "high"}', ["priority"]),
    ('{"tokens": [1,2], "max_tokens": 4095}', ["standard input:2", "2 tokens", "4095", "4096"]),
    ('{"tokens": [1,2], "logit_bias": {"999": 1}}', ["999"]),
])
def test_bad_lines_are_named_and_nothing_runs(line, words):
    done = refused("generate", "--model", NANO, "--requests", "-", "--json",
                   stdin='{"tokens": [1], "max_tokens": 1}\n' + line + "\n", words=words)
    assert done.stdout == ""


@pytest.mark.parametrize("flags, words", [
    (("--max-sequences", "0"), ["--max-sequences"]),
    (("--max-step-tokens", "5"), ["--max-step-tokens", "32"]),
    (("--kv-memory", "1"), ["--kv-memory", "block", "1 bytes"]),
    (("--kv-memory", "lots"), ["--kv-memory"]),
    (("--snapshot-memory", "-1"), ["--snapshot-memory"]),
    (("--replay", "some"), ["--replay"]),
    (("--chaos", "x"), ["--chaos"]),
    (("--chunk", "5"), ["--chunk"]),
    (("--prompt", "x"), ["--prompt"]),
    (("--prefill", "some"), ["some"]),
])
def test_bad_flags_are_named(flags, words):
    refused("generate", "--model", NANO, "--requests", "-", *flags, stdin='{"tokens": [1]}\n',
            words=words)


def test_engine_flags_need_requests():
    refused("generate", "--model", NANO, "--tokens", "-", "--sync", stdin="[1]",
            words=["--requests"])
    refused("generate", "--model", NANO, "--requests", "-", stdin="\n", words=["no requests"])
    refused("generate", "--model", NANO, "--requests", "none.jsonl", words=["none.jsonl"])


def test_more_than_the_cache_can_hold_is_refused():
    requests = '{"tokens": [1], "max_tokens": 2000}\n'
    refused("generate", "--model", NANO, "--requests", "-", "--kv-memory", "32KiB",
            stdin=requests, words=["standard input:1", "2048", "--kv-memory"])


def test_interrupt_writes_what_there_is():
    with subprocess.Popen([BINARY, "generate", "--model", NANO, "--requests", "-", "--json",
                           "--kernels", "reference"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdin.write('{"tokens": [1], "max_tokens": 2, "ignore_eos": true}\n'
                            '{"tokens": [2], "max_tokens": 4000, "ignore_eos": true}\n')
        process.stdin.close()
        first = process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        second = process.stdout.readline()
        assert process.wait(timeout=60) == 130
        process.stderr.read()
    assert json.loads(first)["finish"] == "length"
    assert json.loads(second)["finish"] == "cancelled" and json.loads(second)["tokens"]
