"""kuruma eval: how tasks are judged, what it prints, and which files it refuses."""

import json

from support import ROOT, json_lines, ok, refused

TINY = ROOT / "models" / "tiny"
TASKS = json_lines((TINY / "eval.jsonl").read_text(encoding="utf-8"))


def task(number, kind, value, question="Hello", **more):
    return {"id": f"t{number}", "family": kind, "messages": [{"role": "user", "content": question}],
            "check": {"kind": kind, "value": value}, **more}


def evaluate(*tasks, flags=()):
    return json.loads(ok("eval", "--tasks", "-", "--json", *flags,
                         stdin="\n".join(map(json.dumps, tasks))))


def failed(*tasks):
    return [failure["id"] for failure in evaluate(*tasks)["failures"]]


def passing(family):
    """Tasks of the bundled file that the bundled model answers right."""
    tasks = [t for t in TASKS if t["family"] == family]
    wrong = failed(*tasks)
    return [t for t in tasks if t["id"] not in wrong]


def test_exact_and_contains():
    hello = "Hello! How can I help you?"
    right = [task(1, "exact", hello), task(2, "exact", f" {hello}\n"),
             task(3, "contains", "help"), task(4, "contains", ["Hello", "help"])]
    wrong = [task(5, "exact", hello.lower()), task(6, "exact", ""), task(7, "contains", "HELP"),
             task(8, "contains", ["Hello", "no"])]
    result = evaluate(*right, *wrong)
    assert [f["id"] for f in result["failures"]] == ["t5", "t6", "t7", "t8"]
    assert {f["output"] for f in result["failures"]} == {hello}
    assert result["total"] == 8 and result["passed"] == 4
    assert result["families"] == {"exact": {"total": 4, "passed": 2},
                                  "contains": {"total": 4, "passed": 2}}


def test_json_and_calls_compare_values():
    one = passing("json")[0]
    value = one["check"]["value"]
    swapped = dict(reversed(value.items()))
    tasks = [{**one, "id": "a", "check": {"kind": "json", "value": swapped}},
             {**one, "id": "b", "check": {"kind": "json", "value": {**value, "more": 1}}}]
    call = passing("tool")[0]
    calls = call["check"]["value"]
    tasks += [{**call, "id": "c"},
              {**call, "id": "d", "check": {"kind": "tool_call", "value": calls * 2}},
              {**call, "id": "e", "check": {"kind": "tool_call",
                                            "value": [{**calls[0], "name": "other"}]}},
              {**call, "id": "f", "check": {"kind": "tool_call",
                                            "value": [{**calls[0], "arguments": {}}]}},
              task(1, "json", {}), task(2, "tool_call", calls)]
    if len(calls) == 1:
        tasks.append({**call, "id": "g", "check": {"kind": "tool_call", "value": calls[0]}})
    result = evaluate(*tasks)
    assert [f["id"] for f in result["failures"]] == ["b", "d", "e", "f", "t1", "t2"]
    assert result["families"]["tool"]["valid"] == result["families"]["tool"]["total"]
    assert result["families"]["json"] == {"total": 3, "passed": 1, "valid": 2}


def test_thinking_reaches_the_prompt_and_not_the_content():
    for one in passing("faq_thinking")[:3]:
        assert failed({**one, "thinking": True}) == []
        answer = json.loads(ok("generate", "--messages", "-", "--temperature", 0, "--json",
                               "--quiet", stdin=json.dumps({"messages": one["messages"]})))
        assert "</think>" in answer["text"]


def test_table_and_families():
    text = ok("eval", "--tasks", "-", "--drafts", "--family", "exact", stdin="\n".join(
        map(json.dumps, [task(1, "exact", "x"), task(2, "json", {})])))
    head, row, last = text.splitlines()
    assert head.split() == ["family", "passed", "total", "%", "valid%", "drafts", "accepted", "%",
                            "by", "place"]
    assert row.split()[:5] == ["exact", "0", "1", "0.0", "-"]
    assert last.split()[:3] == ["all", "0", "1"]
    drafts = evaluate(task(1, "exact", "x"), flags=("--drafts",))["families"]["exact"]["drafts"]
    assert len(drafts["offered"]) == len(drafts["accepted"]) == 4
    assert all(a <= o for a, o in zip(drafts["accepted"], drafts["offered"]))


def test_wrong_files(tmp_path):
    good = task(1, "exact", "x")
    file = tmp_path / "tasks.jsonl"
    for lines, words in [
        (["{"], ["line 1", "object"]),
        ([json.dumps(good), "", "[]"], ["line 3"]),
        ([json.dumps(good)] * 2, ["line 2", "t1"]),
        ([""], ["no task"]),
        ([json.dumps({**good, "id": 1})], ["line 1", "id"]),
        ([json.dumps({**good, "family": ""})], ["family"]),
        ([json.dumps({**good, "messages": []})], ["messages"]),
        ([json.dumps({**good, "messages": [{"role": "x", "content": ""}]})], ["role"]),
        ([json.dumps({**good, "max_tokens": 0})], ["max_tokens"]),
        ([json.dumps({**good, "tools": [{}]})], ["tools"]),
        ([json.dumps({**good, "check": {}})], ["check", "kind"]),
        ([json.dumps({**good, "check": {"kind": "exact"}})], ["value"]),
        ([json.dumps({**good, "check": {"kind": "like", "value": "x"}})], ["like", "contains"]),
        ([json.dumps({**good, "check": {"kind": "exact", "value": 1}})], ["value", "text"]),
        ([json.dumps({**good, "check": {"kind": "contains", "value": [1]}})], ["value"]),
        ([json.dumps({**good, "check": {"kind": "tool_call", "value": ["x"]}})], ["arguments"]),
        ([json.dumps({**good, "messages": [{"role": "user", "content": "word " * 5000}]})],
         ["t1", "4096"]),
    ]:
        file.write_text("\n".join(lines))
        refused("eval", "--tasks", file, words=words)
    refused("eval", "--tasks", tmp_path / "none", words=["none"])
    refused("eval", words=["--tasks"])
    refused("eval", "--tasks", TINY / "eval.jsonl", "--family", "nope", words=["nope"])
