"""Whatever is wrong with flags or files: one line that names it, exit status 2."""

import json
import os
import subprocess

import pytest
import support
from support import (BINARY, checkpoint, copy_of, copy_with_tokenizer, edit_header, edit_json, ok, refused,
                     run, shard_of)

TENSOR = "layers.2.attn.wq_a.weight"


def test_help_version_and_unknown_things():
    assert ok("--version").startswith("kuruma ")
    for command in ("chat", "inspect", "generate", "score", "eval", "bench", "tokenize", "render",
                    "parse"):
        assert "Examples:" in ok(command, "--help"), command
        refused(command, "--frobnicate", words=["kuruma " + command])
    assert "Examples:" in ok("--help")
    refused(words=["subcommand"])
    refused("frobnicate", words=["frobnicate"])
    refused("--frobnicate", words=["frobnicate"])
    refused("eval", words=["--tasks"])
    refused("--log-level", "loud", "score", "--model", checkpoint("nano"), words=["loud"])
    refused("score", "--model", "a\nb\x1b[2J", words=["a\\nb\\x1b[2J"])


def test_log_level_shows_more():
    done = run("score", "--model", checkpoint("nano"), "--log-level", "info")
    assert done.returncode == 0 and "loaded in" in done.stderr


def test_tokenize_works_both_ways(tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(support.byte_tokenizer()))
    ids = json.loads(ok("tokenize", "--tokenizer", file, stdin='{"text":"sea"}'))["ids"]
    assert ids == support.ids_of_ascii("sea")
    text = ok("tokenize", "--tokenizer", file, "--decode", stdin=json.dumps({"ids": ids}))
    assert json.loads(text) == {"text": "sea"}
    for command in ("tokenize", "render", "parse"):
        refused(command, "--tokenizer", tmp_path / "none.json", words=["none.json"])


def load_fails(model, *words):
    """Every command that opens the model says the same."""
    refused("score", "--model", model, words=words)
    refused("generate", "--model", model, "--tokens", "-", stdin="[1]", words=words)
    refused("bench", "--model", model, words=words)


def test_directories_that_are_none(tmp_path):
    load_fails(tmp_path / "none", "none")
    refused("inspect", tmp_path / "none", words=["none"])
    load_fails(tmp_path, "config.json")
    refused("inspect", tmp_path, words=["config.json"])
    file = tmp_path / "file"
    file.write_text("x")
    load_fails(file, "file", "not a directory")


@pytest.mark.parametrize("change, words", [
    (lambda c: c["text_config"].update(scoring_func="softmax"), ["scoring_func", "softmax"]),
    (lambda c: c["text_config"].update(hidden_size="x"), ["hidden_size"]),
    (lambda c: c["text_config"].update(hidden_size=65), ["hidden_size", "65"]),
    (lambda c: c["text_config"].pop("vocab_size"), ["vocab_size", "missing"]),
    (lambda c: c["text_config"].update(candidate_topk_blocks=1), ["candidate_topk_blocks"]),
    (lambda c: c["text_config"].update(kv_source_layer_ids=[2, 4, 6]), ["kv_source_layer_ids"]),
    (lambda c: c["text_config"].update(engram_num_embeddings=[1, 2]), ["engram_num_embeddings"]),
    (lambda c: c["quantization_config"].update(expert_dtype="int4"), ["expert_dtype", "int4"]),
    (lambda c: c["quantization_config"].update(weight_block_size=[128, 128]), [".scale"]),
    (lambda c: c.update(model_type="llama"), ["model_type", "llama"]),
    (lambda c: c["text_config"].update(moe_intermediate_size=64), ["calls for"]),
    (lambda c: c["text_config"].update(num_hidden_layers=10), ["compress_ratios"]),
])
def test_configs(change, words, tmp_path):
    model = copy_of("nano", tmp_path)
    edit_json(model / "config.json", change)
    refused("score", "--model", model, words=words)
    refused("inspect", model, words=words)


def test_config_that_is_no_json(tmp_path):
    model = copy_of("nano", tmp_path)
    (model / "config.json").write_text("{")
    load_fails(model, "config.json", "JSON")


def test_truncated_shard(tmp_path):
    model = copy_of("nano", tmp_path)
    path = shard_of(model, TENSOR)
    os.truncate(path, path.stat().st_size - 10)
    load_fails(model, path.name, "truncated")


def test_missing_shard(tmp_path):
    model = copy_of("nano", tmp_path)
    shard_of(model, TENSOR).unlink()
    load_fails(model, shard_of(model, TENSOR).name)


def test_missing_tensor(tmp_path):
    model = copy_of("nano", tmp_path)
    path = edit_header(model, TENSOR, lambda h: h.update({"other": h.pop(TENSOR)}))
    load_fails(model, path.name, TENSOR, "missing")
    edit_json(model / "model.safetensors.index.json", lambda i: i["weight_map"].pop(TENSOR))
    load_fails(model, TENSOR, "missing")


@pytest.mark.parametrize("entry", [{"dtype": "I8"}, {"shape": [64, 32]}])
def test_wrong_dtype_or_shape(entry, tmp_path):
    model = copy_of("nano", tmp_path)
    path = edit_header(model, TENSOR, lambda h: h[TENSOR].update(entry))
    load_fails(model, path.name, TENSOR, "calls for")
    refused("inspect", model, words=[path.name, TENSOR])


def test_overlapping_offsets(tmp_path):
    model = copy_of("nano", tmp_path)

    def shift(header):
        begin, end = header[TENSOR]["data_offsets"]
        header[TENSOR]["data_offsets"] = [begin - 32, end - 32]

    load_fails(model, edit_header(model, TENSOR, shift).name, "overlap")


@pytest.mark.parametrize("length", [1 << 20, 1 << 63])
def test_header_longer_than_the_file(length, tmp_path):
    model = copy_of("nano", tmp_path)
    path = shard_of(model, TENSOR)
    raw = path.read_bytes()
    path.write_bytes((length if length > len(raw) else len(raw)).to_bytes(8, "little") + raw[8:])
    load_fails(model, path.name, "header")


@pytest.mark.parametrize("text, words", [
    ("{", ["JSON"]),
    ("{}", ["token_map"]),
    ('{"token_map": 7}', ["token_map"]),
    ('{"token_map": [1, 2]}', ["token_map", "2", "256"]),
    (json.dumps({"token_map": [0] * 255 + ["x"]}), ["token_map[255]"]),
    (json.dumps({"token_map": [0] * 256}), ["engram_compressed_vocab_size", "199"]),
])
def test_token_maps(text, words, tmp_path):
    model = copy_of("nano", tmp_path)
    (model / "engram_token_map.json").write_text(text)
    load_fails(model, *words)


def test_tokenizers(tmp_path):
    model = copy_with_tokenizer("nano", tmp_path, vocab=300)
    refused("score", "--model", model, words=["tokenizer.json", "300", "256"])
    refused("generate", "--model", model, "--prompt", "x", words=["tokenizer.json", "300", "256"])
    (model / "tokenizer.json").write_text("{")
    refused("score", "--model", model, words=["tokenizer.json"])
    (model / "tokenizer.json").unlink()
    (model / "engram_token_map.json").unlink()
    load_fails(model, "tokenizer.json", "engram_token_map.json")


def test_tokenizer_of_another_model_when_classes_come_from_it(tmp_path):
    model = copy_with_tokenizer("nano", tmp_path)
    (model / "engram_token_map.json").unlink()
    load_fails(model, "token classes", "199")


def test_a_full_disk_is_reported():
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([BINARY, "inspect", checkpoint("nano")], stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and "standard output" in done.stderr


def test_too_little_memory_is_one_line():
    def limit():
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (150 << 20, 150 << 20))

    lines = json.dumps({"tokens": [1] * 4096})
    done = run("score", "--model", checkpoint("nano"), "--top", 256, "--chunk", 0, "--threads", 1,
               stdin=lines, preexec_fn=limit)
    assert done.returncode == 1, done.stderr
    # Which of the two handlers speaks depends on where memory ran out.
    assert done.stderr in ("kuruma error: out of memory\n", "kuruma: out of memory\n")
