"""kuruma score against the reference data, and its promises about equal bytes."""

import json
import math

import pytest
import support
from support import GOLDEN, Tensors, checkpoint, copy_with_tokenizer, json_lines, ok, refused


def score(name, lines, *flags):
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    return json_lines(ok("score", "--model", checkpoint(name), *flags, stdin=stdin))


def log_softmax(row):
    most = max(row)
    log_sum = most + math.log(sum(math.exp(x - most) for x in row))
    return [x - log_sum for x in row]


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["nano", "edge"])
def test_exact_logits_match_the_oracle(name, kernels, tmp_path):
    cases = [Tensors(p) for p in sorted((GOLDEN / name).glob("prefill_*.safetensors"))]
    cases = [c for c in cases if kernels == "cpu" or c.shape("tokens")[0] < 100]
    assert cases
    lines = [{"id": f"c{i}", "tokens": list(c.values("tokens"))} for i, c in enumerate(cases)]
    out = tmp_path / "logits.safetensors"
    score(name, lines, "--numerics", "exact", "--kernels", kernels, "--logits", out)
    ours = Tensors(out)
    for i, case in enumerate(cases):
        assert ours.shape(f"c{i}") == [len(lines[i]["tokens"]), case.shape("exact.logits")[1]]
        rows = ours.rows(f"c{i}")
        for position, expected in zip(case.values("positions"), case.rows("exact.logits")):
            worst = max(abs(a - b) for a, b in zip(rows[position], expected))
            assert worst <= 2e-4, (name, kernels, i, position)


def test_answers_are_the_log_softmax_of_the_logits(tmp_path):
    tokens = [0, 17, 4, 200, 5]
    out = tmp_path / "l.safetensors"
    answers = score("nano", [{"id": "a", "tokens": tokens}, {"tokens": [9]}], "--top", 3,
                    "--logits", out)
    rows = [log_softmax(row) for row in Tensors(out).rows("a")]
    answer = answers[0]
    assert list(answer) == ["id", "tokens", "logprobs", "sum", "perplexity", "top"]
    assert answer["tokens"] == tokens and answer["logprobs"][0] is None
    expected = [rows[i][t] for i, t in enumerate(tokens[1:])]
    assert answer["logprobs"][1:] == pytest.approx(expected, abs=1e-9)
    assert answer["sum"] == pytest.approx(sum(expected), abs=1e-9)
    assert answer["perplexity"] == pytest.approx(math.exp(-sum(expected) / 4), rel=1e-9)
    for row, top in zip(rows, answer["top"]):
        best = sorted(range(len(row)), key=lambda v: (-row[v], v))[:3]
        assert [t for t, _ in top] == best
        assert [p for _, p in top] == pytest.approx([row[v] for v in best], abs=1e-9)
    assert answers[1]["id"] == 2 and answers[1]["logprobs"] == [None]
    assert answers[1]["perplexity"] is None and answers[1]["sum"] == 0
    assert Tensors(out).names() == ["a", "2"]


@pytest.mark.parametrize("kernels", ["reference", "cpu", "cpu-portable"])
def test_logits_do_not_depend_on_chunks_threads_or_prefill(kernels, tmp_path):
    tokens = [(i * 37 + 11) % 256 for i in range(90)]
    outputs = []
    for i, flags in enumerate([("--chunk", 0), ("--chunk", 1), ("--chunk", 7, "--threads", 1),
                               ("--chunk", 64, "--threads", 2), ("--prefill", "full")]):
        out = tmp_path / f"{i}.safetensors"
        score("nano", [{"tokens": tokens}], "--kernels", kernels, "--logits", out, *flags)
        outputs.append(out.read_bytes())
    assert all(o == outputs[0] for o in outputs)


def test_modes_differ_and_compact_runs():
    lines = [{"tokens": list(range(60))}]
    sums = {mode: score("nano", lines, "--numerics", mode)[0]["sum"]
            for mode in ("release", "exact", "vendor")}
    assert len(set(sums.values())) == 3
    score("nano", lines, "--prefill", "compact", "--keep-tokens", 20)


def test_texts_get_a_bos_token_and_added_tokens_only_when_asked(tmp_path):
    model = copy_with_tokenizer("edge", tmp_path, vocab=301)
    line = json.dumps({"text": "a<extra_280>"})
    plain = json_lines(ok("score", "--model", model, stdin=line))[0]["tokens"]
    special = json_lines(ok("score", "--model", model, "--raw-special", stdin=line))[0]["tokens"]
    bos = json.loads((model / "config.json").read_text())["bos_token_id"]
    assert plain == [bos] + support.ids_of_ascii("a<extra_280>")
    assert special == [bos] + support.ids_of_ascii("a") + [280]


@pytest.mark.parametrize("line, words", [
    ("{", ["one JSON object"]),
    ("[1]", ["one JSON object"]),
    ("{}", ["tokens", "text"]),
    ('{"tokens":[1],"text":"x"}', ["either"]),
    ('{"tokens":[]}', ["tokens is empty"]),
    ('{"tokens":"x"}', ["list of token ids"]),
    ('{"tokens":[1,256]}', ["tokens[1]", "0..255", "256"]),
    ('{"tokens":[-1]}', ["tokens[0]", "-1"]),
    ('{"tokens":[4294967296]}', ["4294967296"]),
    ('{"tokens":[1.0]}', ["tokens[0]"]),
    ('{"text":"x"}', ["tokenizer.json"]),
    ('{"text":7}', ["text must be a string"]),
    ('{"id":1.5,"tokens":[1]}', ["id"]),
    (json.dumps({"tokens": [1] * 4097}), ["4097", "4096"]),
    ("\x1b[2J{", ["one JSON object"]),
])
def test_a_bad_line_is_named_after_the_lines_before_it(line, words):
    done = refused("score", "--model", checkpoint("nano"), stdin='{"tokens":[1]}\n\n' + line + "\n",
                   words=["line 3", *words])
    assert len(json_lines(done.stdout)) == 1


def test_ids_of_a_logits_file_are_distinct(tmp_path):
    refused("score", "--model", checkpoint("nano"), "--logits", tmp_path / "x.safetensors",
            stdin='{"id":"a","tokens":[1]}\n{"id":"a","tokens":[1]}\n', words=["line 2", '"a"'])
    refused("score", "--model", checkpoint("nano"), "--logits", tmp_path / "no" / "x",
            words=[str(tmp_path / "no")])
