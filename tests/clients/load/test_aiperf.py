"""NVIDIA's aiperf against the bundled model: every request counts, and so does every token.

$AIPERF is the program. Its figures are checked for being whole, never for speed.
"""

import json
import os
import subprocess

import pytest
from serving import MODEL

REQUESTS, TOKENS = 24, 32


def profile(url, folder, *options):
    """What one run reports."""
    command = [os.environ["AIPERF"], "profile", "--model", "tiny", "--url", url, "--tokenizer", str(MODEL),
               "--request-count", str(REQUESTS), "--synthetic-input-tokens-mean", "60",
               "--output-tokens-mean", str(TOKENS), "--extra-inputs", "ignore_eos:true",
               "--use-server-token-count", "--random-seed", "1", "--ui", "none",
               "--output-artifact-dir", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "profile_export_aiperf.json").read_text())


def check(report, has_usage=True):
    assert report["is_complete"] and not report["error_summary"]
    assert report["request_count"]["avg"] == REQUESTS
    assert "error_request_count" not in report
    if not has_usage:
        return
    assert report["usage_completion_tokens"]["min"] == TOKENS
    assert report["usage_completion_tokens"]["max"] == TOKENS


@pytest.mark.parametrize("endpoint", ["chat", "completions", "messages", "responses"])
@pytest.mark.parametrize("streams", [True, False])
def test_every_request_is_answered_in_full(bundled, tmp_path, endpoint, streams):
    options = ["--endpoint-type", endpoint, "--concurrency", "8"]
    report = profile(bundled.url, tmp_path, *options, *(["--streaming"] if streams else []))
    # It looks for usage in response.completed alone; answers cut by length end with
    # response.incomplete, as those of OpenAI do.
    check(report, has_usage=(endpoint, streams) != ("responses", True))
    if streams:
        assert report["time_to_first_token"]["min"] > 0
    bundled.wait_idle()


def test_arrivals_at_a_rate(bundled, tmp_path):
    check(profile(bundled.url, tmp_path, "--endpoint-type", "chat", "--streaming",
                  "--request-rate", "40", "--arrival-pattern", "poisson"))
    bundled.wait_idle()


def test_it_reads_the_servers_metrics(bundled, tmp_path):
    check(profile(bundled.url, tmp_path, "--endpoint-type", "chat", "--streaming",
                  "--concurrency", "2"))
    metrics = json.loads((tmp_path / "server_metrics_export.json").read_text())["metrics"]
    assert {"kuruma_time_to_first_token_seconds", "kuruma_generation_tokens",
            "kuruma_num_requests_running"} <= set(metrics)
