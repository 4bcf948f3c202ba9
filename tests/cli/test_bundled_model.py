"""The checkpoint in models/tiny: found without --model, and answering as it was published."""

import json
import re
import shutil

import pytest
from support import BINARY, GOLDEN, ROOT, edit_json, json_lines, ok, refused, run

TINY = ROOT / "models" / "tiny"
HELLO = '{"messages":[{"role":"user","content":"Hello"}],"thinking":false}'


def test_accuracy_is_the_published_one():
    """Greedy answers are deterministic: the whole result is equal, failures included. Kernels for
    other processors sum in another order, which changes an answer here and there."""
    result = json.loads(ok("eval", "--tasks", TINY / "eval.jsonl", "--drafts", "--json"))
    published = json.loads((TINY / "result.json").read_text(encoding="utf-8"))
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        has_avx2 = re.search(r"^flags\s*:.*\bavx2\b.*\bf16c\b|^flags\s*:.*\bf16c\b.*\bavx2\b",
                             cpuinfo.read(), re.MULTILINE)
    if has_avx2:
        assert result == published
    for family, numbers in published["families"].items():
        assert abs(result["families"][family]["passed"] - numbers["passed"]) <= 3, family


def test_transcripts():
    """Ten chats, token by token."""
    chats = json_lines((GOLDEN / "tiny" / "chats.jsonl").read_text(encoding="utf-8"))
    assert len(chats) == 10
    for chat in chats:
        for numbers in ([], ["--chunk", 3, "--threads", 1]):
            answer = json.loads(ok("generate", "--messages", "-", "--temperature", 0, "--json",
                                   "--quiet", *numbers, stdin=json.dumps(chat["body"])))
            assert answer["ids"] == chat["ids"], chat["id"]
            assert answer["text"] == chat["text"], chat["id"]


def test_size_and_context():
    files = [path for path in TINY.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 12e6
    report = json.loads(ok("inspect", "--json"))
    assert report["config"]["context"] >= 4096
    named = json.loads(ok("inspect", TINY, "--json"))
    assert report["config"] == named["config"] and report["tensors"] == named["tensors"]


def test_every_command_finds_it(tmp_path):
    for command, text in [("generate", HELLO), ("score", '{"text":"Hello"}'),
                          ("tokenize", '{"text":"Hello"}'), ("render", HELLO), ("chat", "Hello")]:
        flags = ["--messages", "-", "--quiet"] if command == "generate" else []
        out = ok(command, *flags, stdin=text + "\n", cwd=tmp_path)
        assert out, command
    ok("bench", "--prefill", 8, "--batch", 1, "--context", 8, "--steps", 1, "--repeat", 1)


def test_an_installation_finds_it_too(tmp_path):
    program = tmp_path / "a" / "b" / "c" / "d" / "bin" / "kuruma"
    program.parent.mkdir(parents=True)
    shutil.copy(BINARY, program)
    import subprocess
    start = [str(program), "tokenize"]
    missing = subprocess.run(start, input="", capture_output=True, text=True, check=False)
    assert missing.returncode == 2 and "--model" in missing.stderr
    share = program.parents[1] / "share" / "kuruma" / "models"
    shutil.copytree(TINY, share / "tiny")
    found = subprocess.run(start, input='{"text":"Hello"}', capture_output=True, text=True,
                           check=False)
    assert found.returncode == 0 and "ids" in found.stdout


def copy(tmp_path):
    return shutil.copytree(TINY, tmp_path / "tiny")


def test_sampling_defaults_of_a_checkpoint(tmp_path):
    """generation_config.json decides where the user does not."""
    model = copy(tmp_path)
    flags = ("generate", "--model", model, "--messages", "-", "--quiet", "--max-tokens", 12)
    greedy = ok(*flags, stdin=HELLO)
    assert greedy == ok(*flags, "--temperature", 0, stdin=HELLO)
    config = model / "generation_config.json"
    edit_json(config, lambda c: c.update(do_sample=True, temperature=4.0, top_p=1.0))
    assert len({ok(*flags, "--seed", seed, stdin=HELLO) for seed in range(4)}) > 1
    assert ok(*flags, "--temperature", 0, stdin=HELLO) == greedy
    edit_json(config, lambda c: c.update(top_k=1))
    assert ok(*flags, stdin=HELLO) == greedy
    config.unlink()
    one = ok(*flags, "--seed", 5, stdin=HELLO)
    assert one == ok(*flags, "--seed", 5, "--temperature", 1, "--top-p", 0.95, stdin=HELLO)


@pytest.mark.parametrize("key, value", [("temperature", -1), ("temperature", "hot"), ("top_p", 0),
                                        ("top_p", 2), ("top_k", 0.5), ("min_p", 3),
                                        ("repetition_penalty", 0), ("do_sample", 1)])
def test_wrong_sampling_defaults(tmp_path, key, value):
    model = copy(tmp_path)
    edit_json(model / "generation_config.json", lambda c: c.update({key: value}))
    refused("chat", "--model", model, words=["generation_config.json", key])


def test_a_broken_sampling_file(tmp_path):
    model = copy(tmp_path)
    (model / "generation_config.json").write_text("[")
    refused("chat", "--model", model, words=["generation_config.json", "JSON"])


def test_card_states_the_result():
    """The table of the model card is the one of the committed result."""
    card = (TINY / "README.md").read_text(encoding="utf-8")
    result = json.loads((TINY / "result.json").read_text(encoding="utf-8"))
    for family, numbers in result["families"].items():
        if family != "needle":
            row = re.search(rf"^\| `{family}` \| (\d+) \| (\d+) \|", card, re.MULTILINE)
            assert row and [int(row[1]), int(row[2])] == [numbers["passed"], numbers["total"]], family
    assert run("chat", "--quiet", stdin="What is models/tiny?\n").returncode == 0
