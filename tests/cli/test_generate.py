"""kuruma generate: golden continuations, stops, seeds, streaming, interruption."""

import json
import os
import pty
import signal
import subprocess
import time

import pytest
import support
from support import (BINARY, GOLDEN, Tensors, checkpoint, copy_with_tokenizer, ids_of_ascii, ok,
                     refused, run)

NANO = checkpoint("nano")


def generate(model, prompt, *flags):
    """The JSON object of a run from token ids."""
    return json.loads(ok("generate", "--model", model, "--tokens", "-", "--json", "--quiet", *flags,
                         stdin=json.dumps(prompt)))


@pytest.mark.parametrize("name", ["nano", "edge"])
@pytest.mark.parametrize("numerics, kernels", [("release", "reference"), ("exact", "reference"),
                                               ("exact", "cpu")])
def test_greedy_equals_the_oracle(name, numerics, kernels):
    for path in sorted((GOLDEN / name).glob("greedy_*.safetensors")):
        case = Tensors(path)
        expected = list(case.values(f"{numerics}.tokens"))
        for chunk in (0, 5):
            answer = generate(checkpoint(name), list(case.values("prompt")), "--temperature", 0,
                              "--ignore-eos", "--max-tokens", len(expected), "--numerics", numerics,
                              "--kernels", kernels, "--chunk", chunk)
            assert answer["ids"] == expected, (path.name, chunk)


def test_shape_of_the_answer():
    answer = generate(NANO, {"tokens": [0, 17, 4]}, "--max-tokens", 4, "--ignore-eos",
                      "--top-logprobs", 2, "--seed", 9)
    assert list(answer) == ["prompt_tokens", "ids", "text", "logprobs", "top_logprobs",
                            "finish_reason", "seed", "timings"]
    assert answer["prompt_tokens"] == 3 and len(answer["ids"]) == 4 and answer["text"] is None
    assert len(answer["logprobs"]) == 4 and all(p <= 0 for p in answer["logprobs"])
    assert all(len(top) == 2 and top[0][1] >= top[1][1] for top in answer["top_logprobs"])
    assert answer["finish_reason"] == "length" and answer["seed"] == 9
    assert sorted(answer["timings"]) == ["decode_ms", "decode_tokens_per_s", "load_ms",
                                         "prefill_ms", "prompt_tokens_per_s"]


def test_seeds_decide():
    flags = ("--max-tokens", 12, "--ignore-eos", "--temperature", 3)
    first = generate(NANO, [1, 2], *flags)
    again = generate(NANO, [1, 2], *flags, "--seed", first["seed"], "--threads", 1, "--chunk", 1)
    assert again["ids"] == first["ids"]
    assert generate(NANO, [1, 2], *flags, "--seed", 1)["ids"] != \
        generate(NANO, [1, 2], *flags, "--seed", 2)["ids"]


def test_stop_tokens_and_min_tokens():
    free = generate(NANO, [1, 2], "--temperature", 0, "--ignore-eos", "--max-tokens", 10)["ids"]
    stop = free[4]
    cut = generate(NANO, [1, 2], "--temperature", 0, "--ignore-eos", "--max-tokens", 10,
                   "--stop-token-ids", f"{stop},255")
    assert cut["ids"] == free[:free.index(stop) + 1] and cut["finish_reason"] == "stop"
    longer = generate(NANO, [1, 2], "--temperature", 0, "--ignore-eos", "--max-tokens", 10,
                      "--stop-token-ids", stop, "--min-tokens", 8)
    assert stop not in longer["ids"][:8]


def test_text_streams_and_stop_strings_cut_it(tmp_path):
    model = copy_with_tokenizer("nano", tmp_path)
    flags = ("generate", "--model", model, "--prompt", "abc", "--temperature", 0, "--ignore-eos",
             "--max-tokens", 24, "--quiet")
    answer = json.loads(ok(*flags, "--json"))
    assert answer["prompt_tokens"] == 4
    text = answer["text"]
    assert ok(*flags) == text + "\n"
    stop = text[5:8]
    cut = json.loads(ok(*flags, "--json", "--stop", "never seen", "--stop", stop))
    assert cut["text"] == text[:text.index(stop)] and cut["finish_reason"] == "stop"
    assert len(cut["ids"]) < len(answer["ids"])
    assert ok(*flags, "--stop", stop) == text[:text.index(stop)] + "\n"


def test_prompts_by_text_file_and_tokens_agree(tmp_path):
    model = copy_with_tokenizer("nano", tmp_path)
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([0] + ids_of_ascii("sea")))
    flags = ("generate", "--model", model, "--temperature", 0, "--max-tokens", 8, "--quiet")
    assert ok(*flags, "--prompt", "sea") == ok(*flags, "--tokens", tokens)


def test_messages_are_rendered_and_their_fields_count(tmp_path):
    model = copy_with_tokenizer("edge", tmp_path, vocab=301)
    chat = tmp_path / "chat.json"
    messages = [{"role": "user", "content": "Hi"}]
    chat.write_text(json.dumps({"messages": messages, "max_tokens": 3, "seed": 5,
                                "temperature": 0, "top_logprobs": 2, "logprobs": True}))
    flags = ("generate", "--model", model, "--json", "--quiet", "--ignore-eos")
    answer = json.loads(ok(*flags, "--messages", chat))
    assert len(answer["ids"]) == 3 and answer["seed"] == 5 and "top_logprobs" in answer
    rendered = json.loads(ok("render", "--tokenizer", model / "tokenizer.json",
                             stdin=chat.read_text()))
    assert answer["prompt_tokens"] == len(rendered["ids"])
    same = json.loads(ok(*flags, "--tokens", "-", "--temperature", 0, "--max-tokens", 3,
                         stdin=json.dumps(rendered["ids"])))
    assert same["ids"] == answer["ids"]
    # A bare list of messages; flags beat fields.
    bare = json.loads(ok(*flags, "--messages", "-", "--temperature", 0, "--max-tokens", 2,
                         stdin=json.dumps(messages)))
    assert bare["ids"] == answer["ids"][:2]
    assert len(json.loads(ok(*flags, "--messages", chat, "--max-tokens", 1))["ids"]) == 1


def test_without_a_tokenizer_ids_are_printed():
    done = run("generate", "--model", NANO, "--tokens", "-", "--max-tokens", 3, "--ignore-eos",
               stdin="[1]")
    assert len([int(word) for word in done.stdout.split()]) == 3
    assert "prompt 1 tokens" in done.stderr and "seed" in done.stderr


def test_random_weights_are_announced_once(tmp_path):
    model = support.copy_of("nano", tmp_path)
    (model / "kuruma.json").write_text('{"random_weights": true}')
    done = run("generate", "--model", model, "--tokens", "-", "--max-tokens", 2, stdin="[1]")
    assert done.returncode == 0 and done.stderr.count("random weights") == 1
    (model / "kuruma.json").write_text("[")
    refused("generate", "--model", model, "--tokens", "-", stdin="[1]", words=["kuruma.json"])


@pytest.mark.parametrize("flags, words", [
    (("--temperature", "-1"), ["temperature"]),
    (("--temperature", "nan"), ["temperature"]),
    (("--top-p", "0"), ["top_p"]),
    (("--top-k", "-2"), ["top_k"]),
    (("--min-p", "2"), ["min_p"]),
    (("--repetition-penalty", "0"), ["repetition_penalty"]),
    (("--max-tokens", "0"), ["--max-tokens"]),
    (("--max-tokens", "4096"), ["4096", "3 tokens"]),
    (("--stop-token-ids", "256"), ["256"]),
    (("--stop", "x"), ["tokenizer"]),
    (("--stop", ""), ["--stop"]),
    (("--prompt", "x"), ["--prompt"]),
    (("--seed", "x"), ["--seed"]),
    (("--numerics", "fast"), ["fast"]),
    (("--kernels", "gpu"), ["gpu"]),
    (("--prefill", "some"), ["some"]),
    (("--prefill", "compact", "--keep-tokens", "3"), ["3", "at least"]),
    (("--threads", "-1"), ["--threads"]),
])
def test_bad_flags_are_named(flags, words):
    refused("generate", "--model", NANO, "--tokens", "-", *flags, stdin="[1,2,3]", words=words)


def test_bad_prompts_are_named(tmp_path):
    base = ("generate", "--model", NANO)
    refused(*base, words=["--prompt", "--messages", "--tokens"])
    refused(*base, "--tokens", tmp_path / "none.json", words=["none.json"])
    refused(*base, "--tokens", tmp_path, words=["directory"])
    refused(*base, "--tokens", "-", stdin="[1] [2]", words=["standard input"])
    refused(*base, "--tokens", "-", stdin="[]", words=["empty"])
    refused(*base, "--tokens", "-", stdin="[300]", words=["tokens[0]", "300"])
    refused(*base, "--tokens", "-", stdin=json.dumps([1] * 4096), words=["4096 tokens", "context"])
    refused(*base, "--prompt", "x", words=["tokenizer.json"])
    model = copy_with_tokenizer("nano", tmp_path)
    bad = tmp_path / "chat.json"
    for body, word in [("{", "chat.json"), ("{}", "messages"), ('[{"role":"nobody"}]', "role")]:
        bad.write_text(body)
        refused("generate", "--model", model, "--messages", bad, words=[word])


def test_a_reader_that_goes_away_ends_it_quietly():
    process = subprocess.Popen(
        [BINARY, "generate", "--model", NANO, "--tokens", "-", "--max-tokens", "3000",
         "--ignore-eos", "--quiet"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write("[1]")
    process.stdin.close()
    process.stdout.read(4)
    process.stdout.close()
    assert process.wait(timeout=60) == 2
    assert process.stderr.read() == ""
    process.stderr.close()


def test_interrupt_keeps_what_there_is():
    process = subprocess.Popen(
        [BINARY, "generate", "--model", NANO, "--tokens", "-", "--max-tokens", "4000",
         "--ignore-eos", "--kernels", "reference"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write("[1]")
    process.stdin.close()
    first = process.stdout.read(4)
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    errors = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(timeout=60) == 130
    assert (first + rest).endswith("\n") and "interrupted" in errors


def test_progress_is_for_terminals_only():
    master, slave = pty.openpty()
    with subprocess.Popen([BINARY, "score", "--model", NANO], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=slave) as process:
        assert process.wait(timeout=60) == 0
    os.close(slave)
    time.sleep(0.05)
    shown = os.read(master, 4096).decode()
    os.close(master)
    assert "loading" in shown and shown.endswith("\x1b[K")
    assert run("score", "--model", NANO).stderr == ""
