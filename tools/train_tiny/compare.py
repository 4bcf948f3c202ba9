"""PyTorch logits of an exported checkpoint, for comparison with the engine's `exact` numerics.

The weights are the rounded ones, activations float32, the selection is applied: the two programs
compute the same function and differ only in the order of sums.
"""

import json

import torch

from . import formats
from .export import load_checkpoint

LAST_LOGITS = 8  # rows


@torch.no_grad()
def logits_of(backbone, ids):
    return backbone.logits(backbone(torch.tensor([ids]), selects=True))[0]


@torch.no_grad()
def layers_of(backbone, ids):
    """One sequence, layer by layer, for a test that feeds each layer with these streams: what
    enters a layer where that is not what left the one before (behind an Engram), what leaves every
    layer, the last logits, and the token classes.
    """
    out, hooks, previous = {}, [], {}

    def note(number):
        def hook(module, arguments, result):
            if not torch.equal(arguments[0], previous.get("streams", torch.zeros(0))):
                out[f"layer{number}.streams_in"] = arguments[0]
            out[f"layer{number}.streams_out"], out[f"layer{number}.pre_out"] = result
            previous["streams"] = result[0]

        return hook

    for number, block in enumerate(backbone.layers):
        hooks.append(block.register_forward_hook(note(number)))
    hidden = backbone(torch.tensor([ids]), selects=True)[0]
    for hook in hooks:
        hook.remove()
    out = {name: value[: len(ids)].flatten(1).contiguous() for name, value in out.items()}
    return {
        **out,
        "last_logits": backbone.logits(hidden[-LAST_LOGITS:]),
        "tokens": torch.tensor(ids),
        "token_classes": backbone.hash.token_class.to(torch.int64),
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
