"""kuruma inspect and kuruma bench: what they report."""

import json

import pytest
from support import checkpoint, copy_of, edit_json, ok, refused, shard_of, split


def inspect(directory, *flags):
    return json.loads(ok("inspect", directory, "--json", *flags))


def test_roles_tensors_and_memory_of_nano():
    report = inspect(checkpoint("nano"), "--context", 300)
    roles = [layer["role"] for layer in report["layers"]]
    assert roles == ["window only"] * 2 + ["full", "reuse", "full", "full", "reuse", "reindex",
                                           "reuse", "draft", "draft"]
    assert [layer["layer"] for layer in report["layers"] if layer.get("engram")] == [1, 4]
    assert [layer["layer"] for layer in report["layers"] if layer.get("builds_pool")] == [5]
    tensors = report["tensors"]
    assert sum(kind["tensors"] for kind in tensors["kinds"].values()) == tensors["count"]
    assert sum(kind["bytes"] for kind in tensors["kinds"].values()) == tensors["bytes"]
    assert tensors["bytes"] == sum(len(split(checkpoint("nano") / s)[1]) for s in (
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"))
    memory = report["memory"]
    # Per token: index key 32/2 + 32/32, entry 32/2 + 32/16 bytes; two sources of ratio 2, one of 1.
    assert memory["global_kv_bytes_per_token"] == (17 + 18) * 2
    assert memory["global_kv_bytes"] == 3 * 128 * 70  # three blocks of 128 tokens
    assert memory["window_bytes"] == 9 * (8 + 4) * 33
    assert memory["draft_window_bytes"] == 2 * (8 + 4) * 33
    assert report["fits"] is True and report["available"]["bytes"] > 0


def test_text_names_the_same_facts():
    text = ok("inspect", checkpoint("edge"))
    for words in ("reindex", "decoder begins at 4", "Engram before 0", "vision (ignored)",
                  "B/token", "fits here"):
        assert words in text, words


def test_headers_are_enough(tmp_path):
    model = copy_of("nano", tmp_path)
    before = inspect(model)
    for shard in model.glob("*.safetensors"):
        with open(shard, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
        with open(shard, "r+b") as file:
            file.truncate(8 + size)
    after = inspect(model)
    assert after["tensors"] == before["tensors"] and after["memory"] == before["memory"]
    (model / "engram_token_map.json").unlink()
    assert inspect(model)["tensors"] == before["tensors"]


def test_numerics_decide_the_size_of_caches():
    release = inspect(checkpoint("nano"))["memory"]["global_kv_bytes_per_token"]
    exact = inspect(checkpoint("nano"), "--numerics", "exact")["memory"]
    assert exact["global_kv_bytes_per_token"] == (32 + 32) * 4 * 2 > release


def test_context_beyond_the_models_is_refused():
    refused("inspect", checkpoint("nano"), "--context", 4097, words=["4097", "4096"])


def test_a_missing_tensor_is_found_from_headers(tmp_path):
    model = copy_of("nano", tmp_path)
    shard_of(model, "norm.weight")  # it is there now
    edit_json(model / "model.safetensors.index.json", lambda i: i["weight_map"].pop("norm.weight"))
    refused("inspect", model, words=["norm.weight", "missing"])


@pytest.mark.parametrize("name", ["nano", "edge"])
def test_bench_reports_numbers_that_fit_together(name):
    out = json.loads(ok("bench", "--model", checkpoint(name), "--prefill", "16,40", "--batch",
                        "1,3", "--context", 20, "--steps", 2, "--repeat", 1, "--json"))
    assert [p["tokens"] for p in out["prefill"]] == [16, 40]
    assert [d["batch"] for d in out["decode"]] == [1, 3]
    for p in out["prefill"]:
        assert p["tokens_per_s"] == pytest.approx(p["tokens"] * 1000 / p["ms"])
    for d in out["decode"]:
        assert d["tokens_per_s"] == pytest.approx(d["batch"] * 1000 / d["step_ms"])
        assert d["step_bytes"]["total"] == sum(
            d["step_bytes"][part] for part in ("dense", "experts", "caches"))
        assert d["share_of_read_bandwidth"] > 0 and d["flops_per_token"] > 0
    one, three = out["decode"]
    top_k = {"nano": 2, "edge": 3}[name]
    assert one["distinct_experts_per_layer"] == top_k
    assert top_k <= three["distinct_experts_per_layer"] <= 3 * top_k
    assert three["step_bytes"]["dense"] == one["step_bytes"]["dense"]
    assert out["draft"]["verify_rows"] == out["draft"]["drafts"] + 1
    assert out["peak_resident_bytes"] > 0 and out["machine"]["read_bytes_per_s"] > 0


def test_bench_text_and_refusals():
    text = ok("bench", "--model", checkpoint("nano"), "--prefill", "8", "--batch", "1",
              "--context", 8, "--steps", 1, "--repeat", 1)
    for word in ("prefill", "decode", "draft", "peak memory"):
        assert word in text
    refused("bench", "--model", checkpoint("nano"), "--prefill", "5000", words=["5000", "4096"])
    refused("bench", "--model", checkpoint("nano"), "--context", "4096", words=["4096"])
    refused("bench", "--model", checkpoint("nano"), "--batch", "0", words=["--batch"])
