"""Data: determinism, the held-out split, facts, answers that are right."""

import json
import random
import re

import pytest

from conftest import ROOT
from train_tiny import render
from train_tiny.data import evalset, faq, help_texts, mixture, proof
from train_tiny.data.stream import Stream
from train_tiny.data.tasks import Tasks, add_by_digits, subtract_by_digits
from train_tiny.data.turn import Turn, is_held_out


def test_a_step_is_a_function_of_seed_and_progress(tokenizer):
    one, two, other = (
        Stream(tokenizer, 1, 512),
        Stream(tokenizer, 1, 512),
        Stream(tokenizer, 2, 512),
    )
    one.batch(0, 0.1)
    assert (one.batch(7, 0.5).tokens == two.batch(7, 0.5).tokens).all()
    a, b = one.batch(8, 0.5).tokens, other.batch(8, 0.5).tokens
    assert a.shape != b.shape or (a != b).any()


@pytest.mark.parametrize("kind", mixture.KINDS)
def test_rows_fit_and_ask_for_answers(kind, tokenizer):
    stream, rng = Stream(tokenizer, 1), random.Random(1)
    length = 512 if kind == "tool" else 256
    batch = stream.encode(
        [stream.row(rng, kind, mixture.PHASES[0], length) for _ in range(4)], length
    )
    assert batch.tokens.shape == (4, length) and batch.wanted.any(1).all()
    assert (batch.tokens[:, 0] == 0).all()
    assert not batch.wanted[:, 0].any()


def test_only_answers_are_wanted(tokenizer):
    conversation = dict(
        messages=[dict(role="user", content="Hi"), dict(role="assistant", content="Hello!")]
    )
    ids, wanted = render.encode(render.render_training(conversation), tokenizer)
    assert tokenizer.decode([i for i, w in zip(ids, wanted) if w]) == "Hello!<｜end▁of▁sentence｜>"


def test_no_family_is_ever_left_out():
    for phase in mixture.PHASES:
        assert all(phase.families.values())
        for kind in ("json", "tool"):
            assert any(phase.kinds[length][kind] for length in phase.lengths)


def test_no_held_out_item_is_trained(tokenizer):
    items = evalset.held_out(tokenizer.texts())
    assert proof.complaints(items, Stream(tokenizer, 1, 1024), 40) == []


def test_the_proof_finds_a_planted_item(tokenizer):
    items = evalset.held_out(tokenizer.texts(), share=0.1, needles=False)
    stream = Stream(tokenizer, 1, 512)
    turn = next(item["turn"] for item in items if item["family"] == "sum3")
    stream.makers["copy"] = stream.makers["faq"] = lambda rng: turn
    stream.turn = lambda rng, phase: turn
    assert any("held-out" in line for line in proof.complaints(items, stream, 8))


def test_held_out_items_are_reproducible(tokenizer):
    lines = [
        [evalset.as_line(item, 9) for item in evalset.held_out(tokenizer.texts(), share=0.2)]
        for _ in range(2)
    ]
    assert lines[0] == lines[1]
    for line in map(json.loads, lines[0]):
        extra = {"depth", "length"} if line["family"] == "needle" else {"tools"}
        known = {"id", "family", "messages", "thinking", "max_tokens", "check"}
        assert set(line) <= known | extra
        assert line["check"]["kind"] in ("exact", "json", "tool_call")


def test_facts_agree_with_the_documents():
    assert faq.check_facts(faq.load_facts(), ROOT) == []


def test_the_check_of_facts_finds_mistakes():
    wrong = [
        faq.Fact(["a"], "how", "Give --no-such-flag.", source="x"),
        faq.Fact([], "plain", "Hm.", source="y"),
        faq.Fact(["a"], "how", "Run kuruma fly.", source="z"),
    ]
    text = "\n".join(faq.check_facts(wrong, ROOT))
    assert (
        "--no-such-flag" in text
        and "'fly'" in text
        and "needs a subject" in text
        and "two answers" in text
    )


def test_facts_follow_a_new_command(monkeypatch):
    """Its help text brings facts; a command named like a concept leaves the concept its answer."""
    texts = dict(help_texts.load())
    texts[""] = texts[""].replace(
        "Subcommands:\n", "Subcommands:\n  mirror    Copy a model\n  replay   Again\n"
    )
    texts["mirror"] = (
        "Usage\n\nOptions:\n  --peer N:INT=8001           Whom to copy\n\nExamples:\n  x\n"
    )
    texts["replay"] = "Usage\n\nOptions:\n  -h,--help  Print\n"
    before = len(faq.load_facts())
    monkeypatch.setattr(help_texts, "load", lambda: texts)
    facts = faq.load_facts()
    answers = {q: f.answer for f in facts for q in f.phrasings(False)}
    assert answers["What does kuruma mirror do?"] == "kuruma mirror: Copy a model."
    assert answers["What is the default of --peer?"] == "The default of --peer is 8001."
    assert answers["What is replay?"] == "Replay is the rebuilding of windows."
    assert "kuruma replay" in answers["What does kuruma replay do?"]
    assert len(facts) == before + 4
    # Nobody has documented the options yet, but nothing contradicts anything.
    assert not [c for c in faq.check_facts(facts, ROOT) if "answers" in c or "held out" in c]


def test_sums_on_paper_are_right():
    rng = random.Random(4)
    for _ in range(300):
        a, b = sorted((rng.randint(0, 999), rng.randint(0, 999)), reverse=True)
        for text, result in ((add_by_digits(a, b), a + b), (subtract_by_digits(a, b), a - b)):
            assert text.endswith(f"so {result}")
            for step in re.findall(r"(\d+[+-]\d+(?:[+-]1)?)=(\d+)", text):
                assert eval(step[0]) == int(step[1])


def test_tasks_are_answered_correctly():
    tasks, rng = Tasks(), random.Random(5)
    for _ in range(200):
        turn = tasks.sort(rng)
        items = re.split(r"[ ,]+", turn.user.split(": ")[1])
        key = int if items[0].isdigit() else str
        assert re.split(r"[ ,]+", turn.answer) == sorted(items, key=key)
        turn = tasks.reverse(rng)
        assert turn.answer.split()[::-1] == turn.user.split(": ")[1].split()


def test_the_split_is_by_value_alone():
    share = sum(is_held_out(f"sum:{i}") for i in range(4000)) / 4000
    assert 0.04 < share < 0.09
    assert Turn("a", key="k").key == "k"
