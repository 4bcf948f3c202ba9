"""guidellm against the bundled model: every request counts, and so does every token.

$GUIDELLM is the program. Its figures are checked for being whole, never for speed.
"""

import json
import os
import subprocess

import pytest
from serving import MODEL

REQUESTS, TOKENS = 24, 32
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses"]


def run(url, folder, profile, **backend):
    """The only benchmark of one run's report."""
    report = folder / "report.json"
    settings = {"kind": "openai_http", "target": url, "model": "tiny", **backend}
    command = [os.environ["GUIDELLM"], "run",
               "--backend", ",".join(f"{k}={v}" for k, v in settings.items()),
               "--profile", profile,
               "--constraint", f"kind=max_requests,count={REQUESTS}",
               "--tokenizer", f"kind=huggingface_auto,model={MODEL}",
               "--data", f"kind=synthetic_text,prompt_tokens=60,output_tokens={TOKENS}",
               "--output", f"kind=json,path={report}"]
    # It asks a hub for the tokenizer of a folder, too.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                          env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    return benchmark


def check(benchmark):
    totals = benchmark["metrics"]["request_totals"]
    assert totals == {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
    tokens = benchmark["metrics"]["output_token_count"]["successful"]
    assert tokens["min"] == tokens["max"] == TOKENS


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", ["true", "false"])
def test_every_request_is_answered_in_full(bundled, tmp_path, path, stream):
    benchmark = run(bundled.url, tmp_path, "kind=concurrent,streams=8", request_format=path,
                    stream=stream)
    check(benchmark)
    if stream == "true":
        assert benchmark["metrics"]["time_to_first_token_ms"]["successful"]["min"] > 0
    bundled.wait_idle()


def test_arrivals_at_a_rate(bundled, tmp_path):
    check(run(bundled.url, tmp_path, "kind=poisson,rate=40"))
    bundled.wait_idle()


def test_all_at_once(bundled, tmp_path):
    check(run(bundled.url, tmp_path, f"kind=throughput,max_concurrency={REQUESTS}"))
    bundled.wait_idle()
