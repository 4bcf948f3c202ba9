"""/metrics and /stats: form, names, and that they count what happens."""

import re

from support import PATHS, ROOT, bodies, read_until, usage_of, wait_for
from test_cancel import asked, waiting

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(%s(?:,%s)*)\})? '
                    r'([-+]?(?:[0-9.]+(?:e[-+]?[0-9]+)?|Inf|NaN))' % (LABEL, LABEL))


def read(server):
    """{name: kind}, {name and labels: value}; checks the text form of Prometheus, 0.0.4."""
    answer = server.ok("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.body.decode()
    assert text.endswith("\n")
    kinds, helped, samples, current = {}, set(), {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split()[2]
            assert current not in helped, line
            helped.add(current)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == current and name not in kinds, line
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name = match[1]
            if kinds.get(current) == "histogram":
                assert re.sub("_(bucket|sum|count)$", "", name) == current, line
            else:
                assert name == current, line
            key = f"{name}{{{match[2]}}}" if match[2] else name
            assert key not in samples, line
            samples[key] = float(match[3])
    assert helped == set(kinds)
    return kinds, samples


def total(samples, name):
    values = [value for key, value in samples.items()
              if key == name or key.startswith(name + "{")]
    assert values, name
    return sum(values)


def test_form_and_histograms(model):
    model.ok(PATHS["chat"], bodies()["chat"])
    kinds, samples = read(model)
    for name, kind in kinds.items():
        assert name.startswith("kuruma_"), name
        assert (kind == "counter") == name.endswith("_total"), (name, kind)
        if kind != "histogram":
            continue
        buckets = [(key, value) for key, value in samples.items()
                   if key.startswith(name + "_bucket{")]
        values = [value for _, value in buckets]
        assert values == sorted(values) and 'le="+Inf"' in buckets[-1][0], name
        assert values[-1] == samples[name + "_count"], name
        assert samples[name + "_sum"] >= 0


def test_documented_names_are_there(model):
    model.ok(PATHS["chat"], bodies()["chat"])
    kinds, _ = read(model)
    for page in ("engine.md", "serve.md"):
        section = (ROOT / "docs" / page).read_text().partition("## Metrics")[2]
        named = set(re.findall(r"`(kuruma_[a-z0-9_]+)", section))
        assert len(named) > 5, page
        assert named <= set(kinds), (page, named - set(kinds))


def test_they_count(model):
    before = read(model)[1]
    stats = model.stats()
    answers = [model.ok(PATHS["chat"], {**bodies("Count this. " * 100)["chat"],
                                        "temperature": 0}).json for _ in range(3)]
    streamed = model.ok(PATHS["messages"], {**bodies()["messages"], "stream": True}).events
    assert model.post(PATHS["chat"], b"{").status == 400
    after = {}

    def grew(name):
        return total(after, name) - total(before, name)

    def all_counted():  # some are counted after the answer went out
        after.update(read(model)[1])
        return (grew("kuruma_request_success_total") >= 4
                and grew("kuruma_e2e_request_latency_seconds_count") >= 4)

    wait_for(all_counted)
    model.settle()
    after.update(read(model)[1])

    used = [usage_of("chat", answer) for answer in answers]
    start = streamed[0]["message"]["usage"]
    used.append((start["input_tokens"] + start["cache_read_input_tokens"],
                 start["cache_read_input_tokens"], streamed[-2]["usage"]["output_tokens"]))
    assert grew("kuruma_prompt_tokens_total") == sum(u[0] for u in used)
    assert grew("kuruma_prompt_tokens_cached_total") == sum(u[1] for u in used) > 0
    assert grew("kuruma_generation_tokens_total") == sum(u[2] for u in used)
    assert grew("kuruma_request_success_total") == 4
    assert grew("kuruma_e2e_request_latency_seconds_count") == 4
    assert grew("kuruma_time_to_first_token_seconds_count") == 4
    assert grew("kuruma_inter_token_latency_seconds_count") == sum(u[2] for u in used) - 4
    assert grew("kuruma_request_prompt_tokens_sum") == sum(u[0] for u in used)
    assert grew("kuruma_request_generation_tokens_sum") == sum(u[2] for u in used)
    assert grew("kuruma_prefix_cache_hits_total") > 0
    assert grew('kuruma_http_requests_total{method="POST"}') == 5
    assert grew("kuruma_client_disconnects_total") == 0
    assert total(after, "kuruma_num_requests_running") == 0
    assert total(after, "kuruma_num_requests_waiting") == 0
    assert total(after, "kuruma_kv_cache_usage_perc") == 0
    now = model.stats()
    assert now["requests"]["finished"] - stats["requests"]["finished"] == 4
    assert now["tokens"]["generated"] - stats["tokens"]["generated"] == sum(u[2] for u in used)
    assert now["uptime_s"] > stats["uptime_s"] and now["memory"]["resident_bytes"] > 1 << 20
    assert 0 <= now["idle_share"] <= 1 and now["ttft_ms"]["p50"] <= now["ttft_ms"]["p99"]


def test_methods_cannot_fill_the_memory(serve):
    """Labels come from what clients send."""
    with serve() as server:
        for i in range(50):
            server.ask(f"M{i}", "/health")
        _, samples = read(server)
        assert sum(key.startswith("kuruma_http_requests_total") for key in samples) < 15


def test_running_and_waiting(serve):
    with serve("--max-sequences", 1) as server:
        first = server.send(PATHS["chat"], asked("chat", "Write slowly.", True))
        read_until(first, b"~")
        second = server.send(PATHS["chat"], asked("chat", "Write slowly.", True))
        wait_for(lambda: waiting(server) == 1)
        _, samples = read(server)
        assert samples["kuruma_num_requests_running"] == 1
        assert samples["kuruma_num_requests_waiting"] == 1
        assert samples["kuruma_kv_cache_usage_perc"] > 0
        first.close()
        second.close()
        server.settle()
