"""Flags, variables, the file, and the summary at the start."""

import pytest
from support import run



def test_flags_win_over_variables_over_the_file(tmp_path):
    file = tmp_path / "kuruma.toml"
    file.write_text('port = 1\nmax_queue = 1\nmax_sequences = 1\nmodel_alias = ["a", "b"]\n'
                    'api_key = ["hidden"]\n')
    env = {"KURUMA_PORT": "2", "KURUMA_MAX_QUEUE": "2", "KURUMA_CONFIG": str(file)}
    done = run("serve", "--port", 3, "--print-config", env=env)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()

    def line(key):
        found, = [text for text in lines if text.startswith(key + " ")]
        return found

    assert line("port").startswith("port = 3") and "flag --port" in line("port")
    assert line("max_queue").startswith("max_queue = 2")
    assert "KURUMA_MAX_QUEUE" in line("max_queue")
    assert line("max_sequences").startswith("max_sequences = 1")
    assert f"{file}:3" in line("max_sequences")
    assert line("model_alias").startswith('model_alias = ["a", "b"]')
    assert "hidden" not in done.stdout
    assert "default" in line("idle_timeout")


def test_what_is_printed_can_be_read_again(tmp_path):
    first = run("serve", "--port", 3, "--model-alias", "a", "--print-config").stdout
    again = tmp_path / "again.toml"
    again.write_text(first)
    second = run("serve", "--config", again, "--print-config")
    assert second.returncode == 0, second.stderr
    values = [[text.split("#")[0].rstrip() for text in printed.splitlines()]
              for printed in (first, second.stdout)]
    assert values[0] == values[1]


def test_options_reach_the_server(serve, tmp_path):
    file = tmp_path / "k.toml"
    file.write_text('served_model_name = "from-file"\nmax_sequences = 3\n')
    with serve("--config", file, "--max-queue", 7, env={"KURUMA_MAX_STEP_TOKENS": "99"}) as server:
        assert "3 sequences at once, 99 tokens a step, 7 may wait" in server.summary
        assert server.ok("/v1/models").json["data"][0]["id"] == "from-file"
    with serve("--thinking", "false", "--reasoning-field", "both",
               lines=[{"text": "why</think>so"}]) as server:
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        message = server.ok("/v1/chat/completions", body).json["choices"][0]["message"]
        assert "reasoning_content" not in message
        body["thinking"] = {"type": "enabled"}
        message = server.ok("/v1/chat/completions", body).json["choices"][0]["message"]
        assert message["reasoning_content"] == message["reasoning"] == "why"
        assert message["content"] == "so"


@pytest.mark.parametrize("args, words", [
    (["--port", "70000"], ["port", "70000"]),
    (["--port", "x"], ["port"]),
    (["--prefill", "some"], ["prefill", "exact"]),
    (["--kv-memory", "many"], ["kv", "many"]),
    (["--max-step-tokens", "4", "--max-sequences", "8"], ["max_step_tokens", "max_sequences"]),
    (["--api-key", ""], ["key"]),
    (["--api-key", "a b"], ["key"]),
    (["--thinking", "perhaps"], ["thinking", "perhaps"]),
    (["--log-level", "loud"], ["log", "loud"]),
    (["--idle-timeout", "-1"], ["idle"]),
    (["--idle-timeout", "nan"], ["idle"]),
    (["--config", "/none.toml"], ["/none.toml"]),
    (["--model", "/none"], ["/none"]),
    (["--scripted", "/none"], ["/none"]),
    (["--host", "no.such.host.invalid"], ["no.such.host.invalid"]),
    (["--unix-socket", "/none/such/socket"], ["/none/such/socket"]),
    (["--unix-socket", "/tmp/" + "s" * 200], ["socket"]),
    (["--kv-memory", "1"], ["kv"]),
])
def test_bad_options_give_one_line(args, words):
    args = args if "--port" in args else ["--port", "0", *args]
    done = run("serve", *args)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and done.stdout == "", (done.returncode, done.stderr)
    # A model that was loaded says so in a line before.
    assert len([text for text in done.stderr.splitlines() if " info " not in text]) == 1
    assert last.startswith("kuruma serve: "), last
    for word in words:
        assert word in last, last


@pytest.mark.parametrize("text, words", [
    ("port = \"x\"\n", [":1", "port"]),
    ("\nno_such = 1\n", [":2", "no_such"]),
    ("port = 1\nport = 2\n", [":2"]),
    ("port = [\n", ["k.toml"]),
    ("\xff\n", ["k.toml"]),
])
def test_bad_files_name_the_line(tmp_path, text, words):
    file = tmp_path / "k.toml"
    file.write_bytes(text.encode("latin-1"))
    done = run("serve", "--config", file)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("name, value", [("KURUMA_PORT", "-1"), ("KURUMA_SYNC", "2x")])
def test_bad_variables_name_themselves(name, value):
    done = run("serve", env={name: value})
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert name in done.stderr


@pytest.mark.parametrize("script, words", [
    ("", ["no lines"]), ("{\n", [":1"]), ('{"text":"a"}\n[1]\n', [":2"]),
    ('{"text":1}\n', [":1", "text"]), ('{"tokens":[-1]}\n', [":1", "tokens"]),
    ('{"delay_ms":-1}\n', [":1", "delay_ms"]), ('{"text":"a","tokens":[1]}\n', [":1"]),
])
def test_bad_scripts_name_the_line(tmp_path, script, words):
    file = tmp_path / "s.jsonl"
    file.write_text(script)
    done = run("serve", "--port", 0, "--scripted", file)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    for word in [str(file), *words]:
        assert word in done.stderr


def test_a_taken_port(scripted):
    done = run("serve", "--port", scripted.port)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and str(scripted.port) in last and "in use" in last


def test_summary(model, scripted):
    assert model.summary.startswith("kuruma ")
    for word in ("models/tiny", "prefix cache on", "32 sequences at once", "prefill exact",
                 "no API key asked for", "TLS off", "grammar-constrained output", model.url):
        assert word in model.summary, word
    assert "answers from" in scripted.summary and "(3 lines), no model" in scripted.summary


def test_help_names_every_variable():
    listed = run("serve", "--help-env")
    assert listed.returncode == 0 and "KURUMA_MAX_QUEUE=" in listed.stdout
    assert "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE" in listed.stdout


def test_foreign_variables_are_reported(serve):
    with serve(env={"DEEPINFER_SOMETHING_ELSE": "1"}) as server:
        assert "DEEPINFER_SOMETHING_ELSE" in server.log()
