"""Number formats and the released layout."""

import json

import pytest
import torch

from conftest import some_tokens
from train_tiny import export, formats


def test_fp8_tiles_round_trip_within_half_a_step():
    w = torch.randn(64, 96, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.arange(
        -3, 3
    ).repeat_interleave(16)
    back = formats.dequantise(*formats.quantise_fp8_tiles(w))
    largest = (
        w.abs().view(2, 32, 3, 32).amax((1, 3)).repeat_interleave(32, 0).repeat_interleave(32, 1)
    )
    assert ((back - w).abs() <= torch.maximum(w.abs() / 16, largest * 2.0**-16)).all()


def test_values_on_the_grid_survive_exactly():
    codes = torch.arange(16, dtype=torch.uint8).repeat(2, 4)
    values = formats.e2m1_values(codes) * 0.25
    assert torch.equal(formats.dequantise(*formats.quantise_fp4_rows(values)), values)
    exact = torch.randn(32, 32).to(torch.float8_e4m3fn).float()
    assert torch.equal(formats.dequantise(*formats.quantise_fp8_tiles(exact)), exact)


@pytest.mark.parametrize(
    "x, code",
    [(0.25, 0), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5.0, 6), (-9.0, 15)],
)
def test_fp4_ties_go_to_the_even_code(x, code):
    assert int(formats.e2m1_codes(torch.tensor([x]))[0]) == code


def test_the_low_nibble_is_the_even_column():
    w = torch.zeros(1, 32)
    w[0, 0], w[0, 1] = 6.0, -1.0
    packed, scale = formats.quantise_fp4_rows(w)
    assert int(packed.view(torch.uint8)[0, 0]) == 0x7 | 0xA << 4
    assert int(scale[0, 0]) == 127


def test_fp4_takes_the_better_of_two_scales():
    w = torch.full((1, 32), 1.0)
    w[0, 0] = 6.1  # the smallest scale that does not clip would be 2
    error = (formats.dequantise(*formats.quantise_fp4_rows(w)) - w).abs().max()
    assert float(error) < 0.11


def test_a_file_reads_back(tmp_path):
    tensors = {
        "a.weight": torch.randn(3, 5),
        "b": torch.randn(4).to(torch.bfloat16),
        "c.scale": torch.tensor([[127, 3]], dtype=torch.uint8),
    }
    formats.write_safetensors(tmp_path / "x.safetensors", tensors)
    back = formats.read_safetensors(tmp_path / "x.safetensors")
    assert list(back) == list(tensors) and all(torch.equal(back[n], t) for n, t in tensors.items())


def test_export_round_trip_is_stable(model, tokenizer, tmp_path):
    """Rounding an already rounded model changes no value and no other file."""
    export.export_checkpoint(*model, tokenizer, tmp_path / "one")
    backbone, draft, again = export.load_checkpoint(tmp_path / "one")
    export.export_checkpoint(backbone, draft, again, tmp_path / "two")
    one, two = (export.read_tensors(tmp_path / name) for name in ("one", "two"))
    assert list(one) == list(two)
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name]), name
    for path in (tmp_path / "one").glob("*.json"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_rounding_stays_small(model, tokenizer, tmp_path):
    export.export_checkpoint(*model, tokenizer, tmp_path / "one")
    backbone, _, _ = export.load_checkpoint(tmp_path / "one")
    ids = some_tokens(tokenizer, 40)
    with torch.no_grad():
        before, after = (m.logits(m(ids)) for m in (model[0], backbone))
    assert 0 < float((before - after).norm() / before.norm()) < 0.3


def test_the_index_names_every_tensor(model, tokenizer, tmp_path):
    size = export.export_checkpoint(*model, tokenizer, tmp_path / "one")
    index = json.loads((tmp_path / "one" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == size
    names = index["weight_map"]
    c = model[0].config
    for expert in range(c.n_routed_experts):
        for part in ("w1", "w2", "w3"):
            assert f"layers.3.ffn.experts.{expert}.{part}.scale" in names
    assert {
        "layers.6.attn.indexer.wq_b.scale",
        "layers.2.attn.compressor.wgate.weight",
        "mtp.0.main_proj.scale",
        "layers.5.attn.compressor.wkv.weight",
        "mtp.1.confidence_head.proj.weight",
        "layers.1.engram.embed.scale",
        "layers.0.ffn.gate.bias_vl",
    } <= set(names)
    assert not {"layers.5.attn.compressor.wgate.weight", "layers.6.attn.indexer.wk.weight"} & set(
        names
    )


def test_exporting_again_replaces_the_checkpoint_and_keeps_other_files(model, tokenizer, tmp_path):
    export.export_checkpoint(*model, tokenizer, tmp_path / "one")
    (tmp_path / "one" / "README.md").write_text("card")
    (tmp_path / "one" / "model-99999-of-99999.safetensors").write_text("old")
    export.export_checkpoint(*model, tokenizer, tmp_path / "one")
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert "README.md" in names and "model-99999-of-99999.safetensors" not in names
    assert not list(tmp_path.glob("*.partial")) and not list(tmp_path.glob("*.old"))
