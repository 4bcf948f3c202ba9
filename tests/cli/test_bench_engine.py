"""kuruma bench engine: what it reports about many requests at once, and what it refuses."""

import json
import xml.etree.ElementTree

import pytest
from support import checkpoint, ok, refused, run

NANO = checkpoint("nano")
SMALL = ("--num-prompts", 6, "--input-len", 20, "--output-len", 5, "--concurrency", 3)
SVG = "{http://www.w3.org/2000/svg}"


def bench(*flags, **kwargs):
    return json.loads(ok("bench", "engine", "--model", NANO, "--json", *flags, **kwargs))


def test_json_keys_and_numbers_that_fit_together():
    out = bench(*SMALL)
    assert list(out) == ["model", "numerics", "kernels", "prefill_mode", "threads", "load_ms",
                         "repeat", "warmup", "engine", "workload", "rows"]
    assert out["workload"] == {
        "requests": 6, "input_tokens": 120, "output_tokens": 30, "seed": 0, "input_len": 20,
        "output_len": 5, "range_ratio": 0, "prefix_len": 0, "num_prefixes": 1,
        "request_rate": None}
    assert out["engine"]["kv_bytes"] == 0 and out["engine"]["prefix_cache"] is True
    row, = out["rows"]
    assert list(row) == [
        "concurrency", "requests", "failed", "duration_s", "requests_per_s", "input_tokens_per_s",
        "output_tokens_per_s", "total_tokens_per_s", "tokens_per_s_per_user", "ttft_mean_ms",
        "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms", "tpot_p50_ms", "tpot_p90_ms", "tpot_p99_ms",
        "itl_p99_ms", "e2e_p50_ms", "e2e_p99_ms", "steps", "rows_per_step", "prefix_hit_rate",
        "block_hits", "block_lookups", "preemptions", "evictions", "plan_us_per_step",
        "idle_share", "peak_resident_bytes"]
    assert (row["concurrency"], row["requests"], row["failed"]) == (3, 6, 0)
    seconds = row["duration_s"]
    assert row["requests_per_s"] == pytest.approx(6 / seconds)
    assert row["input_tokens_per_s"] == pytest.approx(120 / seconds)
    assert row["output_tokens_per_s"] == pytest.approx(30 / seconds)
    assert row["total_tokens_per_s"] == pytest.approx(150 / seconds)
    assert row["tokens_per_s_per_user"] == pytest.approx(1000 / row["tpot_p50_ms"])
    for name in ("ttft", "tpot"):
        assert 0 < row[f"{name}_p50_ms"] <= row[f"{name}_p90_ms"] <= row[f"{name}_p99_ms"]
    assert row["ttft_p50_ms"] < row["e2e_p50_ms"] <= row["e2e_p99_ms"] <= 1000 * seconds
    # The warm-up is not counted: at most a wasted row per request beyond the ones needed.
    needed = 120 + 6 * 4
    assert needed <= row["steps"] * row["rows_per_step"] <= needed + 7
    assert 5 <= row["steps"] <= 60 and 0 <= row["idle_share"] < 1
    assert row["plan_us_per_step"] > 0 and row["peak_resident_bytes"] > 0


def test_a_sweep_has_a_row_each_and_a_plot(tmp_path):
    plot = tmp_path / "curve.svg"
    out = bench(*SMALL[:-2], "--concurrency", "1,2,6", "--repeat", 2, "--plot", plot)
    assert [row["concurrency"] for row in out["rows"]] == [1, 2, 6]
    assert all(row["requests"] == 6 and isinstance(row["requests"], int) for row in out["rows"])
    assert out["rows"][0]["rows_per_step"] < out["rows"][2]["rows_per_step"]
    root = xml.etree.ElementTree.fromstring(plot.read_text())
    assert root.tag == SVG + "svg"
    points = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(SVG + "circle")]
    assert len(points) == 3
    width, height = float(root.get("width")), float(root.get("height"))
    assert all(0 < x < width and 0 < y < height for x, y in points)
    assert {"1", "2", "6"} <= {text.text for text in root.iter(SVG + "text")}


def test_tables_and_notes():
    done = run("bench", "engine", "--model", NANO, *SMALL[:-2], "--max-sequences", 2, "--sync",
               "--warmup", 0, "--concurrency", "3,9")
    assert done.returncode == 0
    for word in ("throughput", "latency, ms", "engine", "TTFT mean", "TPOT p50", "tok/s/user",
                 "idle%", "6 prompts of 20 tokens, answers of 5"):
        assert word in done.stdout, word
    assert len(done.stdout.splitlines()) == 2 + 3 * (2 + 2)
    assert "concurrency of 9 is never reached" in done.stderr and "--max-sequences" in done.stderr


def test_answers_of_one_token_have_no_speed(tmp_path):
    flags = ("--num-prompts", 2, "--input-len", 5, "--output-len", 1)
    row, = bench(*flags)["rows"]
    assert row["tpot_p50_ms"] is None and row["tokens_per_s_per_user"] is None
    assert row["ttft_p50_ms"] > 0
    refused("bench", "engine", "--model", NANO, *flags, "--plot", tmp_path / "x.svg",
            words=["--plot", "one token"])


def test_shared_prefixes_are_found_unless_forbidden():
    mix = ("--num-prompts", 6, "--input-len", 10, "--output-len", 2, "--prefix-len", 256,
           "--num-prefixes", 2, "--concurrency", 1)
    row, = bench(*mix)["rows"]
    # Each prefix is computed once, then found by the two others: both blocks of it.
    assert row["prefix_hit_rate"] == pytest.approx(4 * 256 / (6 * 266))
    assert row["block_hits"] == 8 and row["block_lookups"] >= 8
    row, = bench(*mix, "--no-prefix-cache")["rows"]
    assert row["prefix_hit_rate"] == 0 and row["block_hits"] == 0
    row, = bench(*SMALL)["rows"]
    assert row["prefix_hit_rate"] == 0


def test_runs_do_not_see_each_other():
    """Every run has an empty cache, and the warm-up leaves nothing that helps."""
    out = bench("--num-prompts", 2, "--input-len", 256, "--output-len", 2, "--concurrency", "1,1",
                "--repeat", 2, "--warmup", 2)
    assert [row["block_hits"] for row in out["rows"]] == [0, 0]


def test_small_caches_preempt():
    """Six sequences of three blocks each in a cache for about two of them."""
    flags = ("--num-prompts", 6, "--input-len", 250, "--output-len", 20, "--concurrency", 6)
    block = 1
    while True:  # the smallest cache that one request fits in
        done = run("bench", "engine", "--model", NANO, *flags, "--kv-memory", block, "--json")
        if done.returncode == 0:
            break
        assert done.returncode == 2 and "--kv-memory" in done.stderr
        block *= 2
    row, = json.loads(done.stdout)["rows"]
    assert row["requests"] == 6 and row["failed"] == 0
    assert row["preemptions"] + row["evictions"] > 0


def test_what_the_cache_cannot_hold_ends_the_run(tmp_path):
    """The second request is refused while the first one runs."""
    path = tmp_path / "trace.jsonl"
    path.write_text('{"arrival_s": 0, "input_len": 10, "output_len": 50}\n'
                    '{"arrival_s": 0, "input_len": 3900, "output_len": 50}\n')
    refused("bench", "engine", "--model", NANO, "--trace", path, "--kv-memory", "64k",
            words=["request 2: ", "3968 tokens", "--kv-memory"])


def test_trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = [{"arrival_s": 0.3, "input_len": 10, "output_len": 3},
             {"arrival_s": 0, "input_len": 20, "output_len": 2, "prefix_len": 128, "prefix": 1},
             {"arrival_s": 0.2, "input_len": 5, "output_len": 2, "prefix_len": 128, "prefix": 1}]
    path.write_text("\n".join(map(json.dumps, lines)))
    out = bench("--trace", path)
    assert out["workload"] == {"requests": 3, "input_tokens": 291, "output_tokens": 7, "seed": 0,
                               "trace": str(path)}
    row, = out["rows"]
    assert row["requests"] == 3 and row["block_hits"] == 1
    assert row["duration_s"] > 0.3
    assert bench("--trace", "-", stdin=path.read_text())["rows"][0]["requests"] == 3
    refused("bench", "engine", "--model", NANO, "--trace", path, "--input-len", 3,
            words=["--trace", "--input-len"])
    path.write_text(json.dumps(lines[0]) + "\nnonsense\n")
    refused("bench", "engine", "--model", NANO, "--trace", path, words=["trace.jsonl: line 2: "])
    lines[1]["output_len"] = 4000
    path.write_text("\n".join(map(json.dumps, lines)))
    refused("bench", "engine", "--model", NANO, "--trace", path, words=["line 2", "4148", "4096"])
    path.write_text("\n")
    refused("bench", "engine", "--model", NANO, "--trace", path, words=["no requests"])
    refused("bench", "engine", "--model", NANO, "--trace", tmp_path / "none", words=["none"])


def test_arrivals_take_their_time():
    row, = bench("--num-prompts", 5, "--input-len", 4, "--output-len", 2, "--request-rate", 20,
                 "--seed", 1)["rows"]
    assert row["duration_s"] > 0.05


@pytest.mark.parametrize("flags, words", [
    (("--concurrency", "0"), ["--concurrency", "1 to"]),
    (("--concurrency", "1,x"), ["--concurrency"]),
    (("--num-prompts", 0), ["--num-prompts", "1..1000000"]),
    (("--input-len", 5000), ["--input-len 5000", "4096"]),
    (("--output-len", -1), ["--output-len"]),
    (("--range-ratio", 1), ["--range-ratio", "below 1"]),
    (("--request-rate", 0), ["--request-rate", "inf"]),
    (("--request-rate", -2), ["--request-rate"]),
    (("--request-rate", "nan"), ["--request-rate"]),
    (("--repeat", 0), ["--repeat"]),
    (("--seed", -1), ["--seed", "0 to"]),
    (("--chaos", -1), ["--chaos", "0 to"]),
    (("--warmup", -1), ["--warmup"]),
    (("--kv-memory", "lots"), ["--kv-memory", "512MiB"]),
    (("--kv-memory", 1), ["--kv-memory", "one block"]),
    (("--max-sequences", 0), ["--max-sequences"]),
    (("--max-step-tokens", 8), ["--max-step-tokens", "--max-sequences (32)"]),
    (("--target-tpot-ms", "nan"), ["--target-tpot-ms"]),
    (("--replay", "none"), ["--replay", "bounded"]),
    (("--plot", "/nowhere/x.svg"), ["/nowhere/x.svg"]),
    (("--chunk", 5), ["--chunk"]),
    (("--batch", 4), ["--batch", "flag of kuruma bench"]),
    (("--frobnicate",), ["kuruma bench engine", "--frobnicate"]),
])
def test_bad_flags_are_named(flags, words):
    refused("bench", "engine", "--model", NANO, *flags, words=words)


def test_flags_of_bench_are_not_taken_silently():
    refused("bench", "--steps", 3, "engine", "--model", NANO, words=["--steps"])
    refused("bench", "--model", NANO, "engine", words=["--model"])
    refused("bench", "engine", "--model", NANO / "none", words=["none"])
    assert "Examples:" in ok("bench", "engine", "--help")
