"""The architecture: causality, selection, agreement with the engine on an exported checkpoint."""

import json
import subprocess

import torch
import torch.nn.functional as F

from conftest import make_model, some_tokens
from train_tiny import compare, distill, export, formats
from train_tiny.draft import draft_loss


def test_changing_the_tail_leaves_the_head_exactly_unchanged(model, tokenizer):
    backbone, _ = model
    ids = some_tokens(tokenizer, 96)
    changed = ids.clone()
    changed[0, 50:] = some_tokens(tokenizer, 96, seed=1)[0, 50:]
    for selects in (False, True):
        one, two = (
            F.cross_entropy(backbone.logits(backbone(x, selects=selects))[0, :49], ids[0, 1:50])
            for x in (ids, changed)
        )
        assert one.item() == two.item()


def test_padding_behind_a_row_changes_nothing(model, tokenizer):
    backbone, _ = model
    ids = some_tokens(tokenizer, 64)
    longer = torch.cat([ids, torch.full((1, 32), 2)], 1)
    assert torch.allclose(backbone(ids), backbone(longer)[:, :64], atol=1e-5)


def test_selection_matters_only_beyond_its_size(model, tokenizer):
    backbone, _ = model
    ids = some_tokens(tokenizer, 80)
    everything, selected = backbone(ids)[0], backbone(ids, selects=True)[0]
    assert torch.allclose(everything[:8], selected[:8], atol=1e-5)  # at most 8 entries are visible
    assert not torch.allclose(everything[60:], selected[60:], atol=1e-2)


def test_long_rows_in_segments_equal_short_ones(model, tokenizer):
    backbone, _ = model
    ids = some_tokens(tokenizer, 600)  # longer than one segment
    assert torch.allclose(backbone(ids)[:, :512], backbone(ids[:, :512]), atol=1e-5)


def test_a_checkpointed_segment_has_the_same_gradients(tokenizer, monkeypatch):
    from train_tiny import attention

    ids, grads = some_tokens(tokenizer, 64), []
    for segment in (512, 16):
        monkeypatch.setattr(attention, "SEGMENT_TOKENS", segment)
        backbone, _ = make_model(tokenizer)
        backbone(ids).square().sum().backward()
        grads.append(backbone.layers[2].attn.wkv.weight.grad)
    assert torch.allclose(*grads, rtol=1e-4, atol=1e-4)


def test_the_router_bias_balances_the_load(model, tokenizer):
    backbone, _ = model
    gate = backbone.gates()[0]
    gate.load.copy_(torch.tensor([9.0, 1.0, 5.0, 5.0]))
    before = gate.bias.clone()
    gate.balance(0.01)
    assert torch.allclose(gate.bias - before, torch.tensor([-0.01, 0.01, 0.0, 0.0]))
    assert not gate.load.any()


def test_index_loss_trains_indexers_alone(model, tokenizer):
    backbone, _ = model
    distill.index_loss(backbone, some_tokens(tokenizer, 64)).backward()
    names = {name for name, _ in distill.index_parameters(backbone)}
    assert names and all(
        (p.grad is not None) == (n in names) for n, p in backbone.named_parameters()
    )


def test_index_loss_vanishes_when_scores_explain_the_attention(model, tokenizer):
    """The Kullback-Leibler divergence is at least 0 and grows when the scores are spoilt."""
    backbone, _ = model
    ids = some_tokens(tokenizer, 64)
    loss = float(distill.index_loss(backbone, ids).detach())
    for name, p in distill.index_parameters(backbone):
        if "weights_proj" in name:
            p.data *= -30
    assert 0 < loss < float(distill.index_loss(backbone, ids).detach())


def test_the_draft_never_sees_beyond_its_anchor(model, tokenizer):
    backbone, draft = model
    ids = some_tokens(tokenizer, 64)
    other = ids.clone()
    other[0, 42:] = some_tokens(tokenizer, 64, seed=2)[0, 42:]
    results = []
    for tokens in (ids, other):
        kept = []
        backbone(tokens, kept=kept)
        rings = draft.ring_rows(kept)
        results.append(
            draft(backbone, rings, torch.tensor([0]), torch.tensor([40]), tokens[0, 41:42])[1]
        )
    # Not bit for bit: which tokens share an expert's product depends on the tail.
    assert torch.allclose(*results, atol=1e-4)
    assert float((results[0] - results[0].mean(-1, keepdim=True)).detach().std()) > 0.1


def test_draft_loss_reaches_every_draft_parameter(model, tokenizer):
    backbone, draft = model
    ids, kept = some_tokens(tokenizer, 64), []
    with torch.no_grad():
        hidden = backbone(ids, kept=kept)
        anchor = torch.arange(5, 55, 5)
        row, k = torch.zeros_like(anchor), draft.config.dspark_block_size
        targets = backbone.logits(hidden[row[:, None], anchor[:, None] + 1 + torch.arange(k)])
    loss, seen = draft_loss(
        draft,
        backbone,
        draft.ring_rows(kept),
        row,
        anchor,
        ids,
        torch.ones(len(anchor), k, dtype=torch.bool),
        targets,
    )
    loss.backward()
    assert not [name for name, p in draft.named_parameters() if p.grad is None]
    assert all(p.grad is None for p in backbone.parameters())
    assert (seen[1] == len(anchor)).all()


def test_exported_checkpoint_gives_the_engine_the_same_logits(model, tokenizer, kuruma, tmp_path):
    """An independent implementation on the same file: rounding, names, roles, hashes, selection."""
    export.export_checkpoint(*model, tokenizer, tmp_path / "model")
    backbone, _, _ = export.load_checkpoint(tmp_path / "model")
    lines = [
        dict(id=str(n), tokens=some_tokens(tokenizer, n, seed=n)[0].tolist())
        for n in (1, 7, 40, 151)
    ]
    command = [
        kuruma,
        "score",
        "--model",
        tmp_path / "model",
        "--numerics",
        "exact",
        "--threads",
        "1",
        "--logits",
        tmp_path / "logits.safetensors",
    ]
    subprocess.run(
        command, input="\n".join(map(json.dumps, lines)), text=True, check=True, capture_output=True
    )
    theirs = formats.read_safetensors(tmp_path / "logits.safetensors")
    for line in lines:
        mine = compare.logits_of(backbone, line["tokens"])
        assert float((theirs[line["id"]] - mine).abs().max()) < 2e-4


def test_layers_of_names_every_layer(model, tokenizer):
    backbone, _ = model
    layers = compare.layers_of(backbone, some_tokens(tokenizer, 20)[0].tolist())
    for number in range(backbone.config.num_hidden_layers):
        assert layers[f"layer{number}.streams_out"].shape == (
            20,
            4 * backbone.config.hidden_size,
        )
