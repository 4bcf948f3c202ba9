"""PyTorch logits of an exported checkpoint, for comparison with the engine's `exact` numerics.

The weights are the rounded ones, activations float32, the selection is applied: the two programs
compute the same function and differ only in the order of sums.
"""

import json

import torch

from . import formats
from .export import load_checkpoint


@torch.no_grad()
def logits_of(backbone, ids):
    return backbone.logits(backbone(torch.tensor([ids]), selects=True))[0]


@torch.no_grad()
def layers_of(backbone, ids):
    """Streams entering and leaving every layer, collapse weights, hidden state and logits of one
    sequence.
    """
    out, hooks, h = {}, [], backbone.config.hc_mult

    def note(number):
        def hook(module, arguments, result):
            out[f"layer{number}.streams_in"], out[f"layer{number}.pre_in"] = (
                arguments[0],
                arguments[1],
            )
            out[f"layer{number}.streams_out"], out[f"layer{number}.pre_out"] = result

        return hook

    for number, block in enumerate(backbone.layers):
        hooks.append(block.register_forward_hook(note(number)))
    hidden = backbone(torch.tensor([ids]), selects=True)[0]
    for hook in hooks:
        hook.remove()
    out = {name: value[: len(ids)].contiguous() for name, value in out.items()}
    assert out["layer0.streams_in"].shape[1] == h
    return {
        **out,
        "final_hidden": hidden,
        "logits": backbone.logits(hidden),
        "tokens": torch.tensor(ids),
    }


def main(a):
    backbone, _, _ = load_checkpoint(a.model)
    lines = [json.loads(line) for line in open(a.tokens, encoding="utf-8") if line.strip()]
    mine = {
        str(line.get("id", i)): logits_of(backbone, line["tokens"])
        for i, line in enumerate(lines, 1)
    }
    if a.write:
        formats.write_safetensors(a.write, mine)
    if a.layers:
        formats.write_safetensors(a.layers, layers_of(backbone, lines[0]["tokens"]))
    if not a.against:
        return 0
    theirs, worst = formats.read_safetensors(a.against), 0.0
    for name, logits in mine.items():
        difference = float((theirs[name] - logits).abs().max())
        same = float((theirs[name].argmax(-1) == logits.argmax(-1)).float().mean())
        print(
            f"{name}: {len(logits)} tokens, largest difference {difference:.2e}, "
            f"best token equal {100 * same:.2f} %"
        )
        worst = max(worst, difference)
    return int(worst > a.tolerance)
