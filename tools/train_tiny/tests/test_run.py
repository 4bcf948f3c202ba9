"""Whole runs: resuming, the clock, evaluation, the curves."""

import json

import pytest
import torch

from train_tiny import evaluate, export, stages
from train_tiny.clock import Clock
from train_tiny.data import evalset, mixture
from train_tiny.optim import is_muon, orthogonalise, rate_factor
from train_tiny.plot import plot_run
from train_tiny.run import Options, Run, recorded_progress


def _options(folder, **more):
    return Options(
        **{
            **dict(
                out=str(folder),
                preset="micro",
                vocab_size=500,
                steps=8,
                tokens_per_step=256,
                evaluations=0,
                vocabulary_rows=60,
                kernels=False,
            ),
            **more,
        }
    )


def _without_evaluation(monkeypatch):
    """And with short rows only: these tests are about the run, not about the data."""
    monkeypatch.setattr(Run, "_evaluate", lambda self, quick=False: None)
    monkeypatch.setattr(stages, "INDEX_LENGTHS", {256: 1})
    for phase in mixture.PHASES:
        for length in [n for n in phase.lengths if n > 256]:
            monkeypatch.delitem(phase.lengths, length)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch):
    _without_evaluation(monkeypatch)
    straight = Run(_options(tmp_path / "a"))
    assert straight.train()
    pieces = 0
    while not (run := Run(_options(tmp_path / "b", stop_after=3))).train():
        pieces += 1
    assert pieces >= 3  # cuts in several stages
    for one, two in ((straight.backbone, run.backbone), (straight.draft, run.draft)):
        for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
            assert torch.equal(a, b), name
    assert [
        line.split(",")[5] for line in (tmp_path / "a" / "log.csv").read_text().splitlines()
    ] == [line.split(",")[5] for line in (tmp_path / "b" / "log.csv").read_text().splitlines()]


def test_a_run_from_a_checkpoint_begins_with_its_weights_in_the_last_phase(tmp_path, monkeypatch):
    _without_evaluation(monkeypatch)
    first = Run(_options(tmp_path / "a", steps=2, stop_after=1))
    first.train()
    first.export(tmp_path / "checkpoint")
    kept, _, tokenizer = export.load_checkpoint(tmp_path / "checkpoint")
    start = dict(start=str(tmp_path / "checkpoint"), seed=2, vocab_size=999)
    second = Run(_options(tmp_path / "b", stop_after=1, **start))
    assert second.tokenizer.json_text == tokenizer.json_text
    for (name, a), b in zip(
        second.backbone.state_dict().items(), kept.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
    progress = []
    monkeypatch.setattr(second.stage, "batch", lambda step, at: progress.append(at))
    monkeypatch.setattr(second.stage, "step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        second.train()
    assert progress == [mixture.PHASES[-1].start]


def test_the_loss_falls(tmp_path, monkeypatch):
    _without_evaluation(monkeypatch)
    run = Run(_options(tmp_path, steps=31, stop_after=31))
    run.train()
    losses = [
        float(line.split(",")[5]) for line in (tmp_path / "log.csv").read_text().splitlines()[1:]
    ]
    assert losses[-1] < losses[0] - 0.4


def test_other_options_do_not_continue_a_run(tmp_path, monkeypatch):
    _without_evaluation(monkeypatch)
    Run(_options(tmp_path, stop_after=1)).train()
    try:
        Run(_options(tmp_path, seed=2))
    except ValueError as error:
        assert "seed" in str(error)
    else:
        raise AssertionError("a run with another seed went on from this state")


def test_time_budget_is_recorded_and_can_be_repeated(tmp_path):
    seconds = iter(range(0, 10000, 7))
    clock = Clock(minutes=10, now=lambda: float(next(seconds)))
    clock.start()
    seen = [clock.progress(step) for step in range(100)]
    assert seen == sorted(seen) and seen[0] < seen[-1]
    log = tmp_path / "log.csv"
    log.write_text(
        "stage,step,progress\n"
        + "".join(f"main,{s},{p}\n" for s, p in enumerate(seen) if s % 10 == 0)
    )
    again = Clock(minutes=10, replay=recorded_progress(log)["main"])
    assert [again.progress(step) for step in range(100)] == seen


def test_a_clock_goes_on_where_it_stopped():
    now = [0.0]
    first = Clock(minutes=1, now=lambda: now[0])
    first.start()
    now[0] = 30.0
    assert first.progress(0) == 0.5
    state = first.state_dict()
    second = Clock(minutes=1, now=lambda: now[0])
    now[0] = 1000.0
    second.load_state_dict(state)
    second.start()
    now[0] = 1015.0
    assert second.progress(10) == 0.75


def test_the_rate_warms_up_and_decays_to_zero():
    assert (
        rate_factor(0) < 0.01
        and rate_factor(0.3) == 1
        and abs(rate_factor(0.8) - 0.5) < 1e-9
        and rate_factor(1) == 0
    )


def test_muon_takes_projections_and_leaves_the_rest():
    assert is_muon("layers.0.attn.wq_a.weight", torch.zeros(2, 2)) and is_muon(
        "layers.0.ffn.experts.w1", torch.zeros(2, 2, 2)
    )
    for name in (
        "embed.weight",
        "head.weight",
        "layers.1.engram.embed.weight",
        "layers.0.ffn.gate.weight",
        "layers.0.hc_attn_fn",
        "layers.1.engram.q_weight",
        "1.markov_head.head.weight",
    ):
        assert not is_muon(name, torch.zeros(2, 2))


def test_orthogonalised_matrices_have_singular_values_near_one():
    for shape in ((3, 16, 48), (2, 48, 16)):
        values = torch.linalg.svdvals(
            orthogonalise(torch.randn(shape, generator=torch.Generator().manual_seed(1)))
        )
        assert 0.6 < float(values.min()) and float(values.max()) < 1.3


def test_teacher_forcing_gives_the_verdict_of_greedy_decoding(model, tokenizer):
    backbone, _ = model
    item = evalset.held_out(tokenizer.texts(), share=0.02, needles=False)[0]
    prompt, start = evaluate.answer_ids(item, tokenizer)
    ids = prompt[:start]
    with torch.no_grad():
        for _ in range(len(prompt) - start):
            ids.append(int(backbone.logits(backbone(torch.tensor([ids])))[0, -1].argmax()))
    result = evaluate.accuracy(backbone, tokenizer, [item])[item["family"]]
    assert result[0] == int(ids == prompt)


def test_acceptance_counts_leading_matches(model, tokenizer):
    backbone, draft = model
    items = evalset.held_out(tokenizer.texts(), share=0.02, needles=False)[:3]
    for mean, places, anchors in evaluate.acceptance(backbone, draft, tokenizer, items).values():
        assert 0 <= mean <= len(places) and anchors > 0 and all(0 <= p <= 1 for p in places)


def test_curves_are_drawn(tmp_path):
    (tmp_path / "log.csv").write_text(
        "stage,step,progress,seconds,tokens,loss\nmain,0,0,1,2048,7.6\nmain,10,0.5,2,22528,6\n"
    )
    (tmp_path / "accuracy.jsonl").write_text(
        json.dumps(
            dict(
                stage="main",
                step=10,
                tokens=22528,
                families=dict(faq=dict(right=1, n=2, tokens=0.5)),
            )
        )
        + "\n"
    )
    plot_run(tmp_path, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000
