"""Writes and reads the released checkpoint layout.

`export_checkpoint` rounds a trained model into shards, index, config.json and tokenizer.json;
`load_checkpoint` builds the PyTorch model from such a folder with the rounded weights.
"""

import json
import os
import re
import shutil
from pathlib import Path

import torch

from . import formats
from .config import config_json, from_config_json
from .draft import Draft
from .model import Backbone
from .tokenizer import IMAGE, Tokenizer

_EXPERT = re.compile(r"(.*\.ffn\.experts)\.(w[123])$")
_FP8 = re.compile(r"\.(wq_a|wq_b|wkv|wo_a|wo_b|main_proj|w1|w2|w3)\.weight$")
_FLOAT32 = re.compile(r"(attn_sink|hc_(attn|ffn)_(fn|base|scale)|gate\.bias)$")
SHARDS = 3
# Its answers are exact or wrong: the best token is always the right choice.
_GENERATION = dict(bos_token_id=0, eos_token_id=1, do_sample=False)


def _stored(name, value):
    """The tensors that store one parameter."""
    match = _EXPERT.match(name)
    if match:
        out = {}
        for expert, weight in enumerate(value):
            prefix = f"{match[1]}.{expert}.{match[2]}"
            out[prefix + ".weight"], out[prefix + ".scale"] = formats.quantise_fp4_rows(weight)
        return out
    if name.endswith("engram.embed.weight"):
        weight, scale = formats.quantise_fp8_rows(value)
        return {name: weight, name.removesuffix("weight") + "scale": scale}
    if _FP8.search(name) and ".compressor." not in name:
        weight, scale = formats.quantise_fp8_tiles(value)
        return {name: weight, name.removesuffix("weight") + "scale": scale}
    if _FLOAT32.search(name):
        out = {name: value.detach().float()}
        if name.endswith("gate.bias"):
            out[name + "_vl"] = out[name].clone()
        return out
    return {name: value.detach().to(torch.bfloat16)}


def named_values(backbone, draft):
    """(released name, tensor) of all parameters and router biases."""
    yield from backbone.state_dict().items()
    for name, value in draft.state_dict().items():
        yield f"mtp.{name}", value


def released_tensors(backbone, draft):
    out = {}
    for name, value in named_values(backbone, draft):
        out.update(_stored(name, value))
    return out


def _shards(tensors):
    """Backbone in all but the last shard, cut at whole tensors; draft and Engram tables in the
    last.
    """
    late = {n: t for n, t in tensors.items() if n.startswith("mtp.") or ".engram.embed." in n}
    early = {n: t for n, t in tensors.items() if n not in late}
    total, done = sum(t.numel() * t.element_size() for t in early.values()), 0
    shards = [{} for _ in range(SHARDS)]
    for name, tensor in early.items():
        shards[done * (SHARDS - 1) // total][name] = tensor
        done += tensor.numel() * tensor.element_size()
    shards[-1] = late
    return shards


def export_checkpoint(backbone, draft, tokenizer, folder):
    """Writes the whole folder under a temporary name and then renames it into place."""
    folder = Path(folder)
    temporary = folder.with_name(folder.name + ".partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    index, size = {}, 0
    for number, tensors in enumerate(_shards(released_tensors(backbone, draft)), 1):
        name = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        formats.write_safetensors(temporary / name, tensors)
        index.update(dict.fromkeys(tensors, name))
        size += sum(t.numel() * t.element_size() for t in tensors.values())
    config = config_json(backbone.config, tokenizer.special(IMAGE))
    (temporary / "model.safetensors.index.json").write_text(
        json.dumps(
            {"metadata": {"total_size": size}, "weight_map": dict(sorted(index.items()))}, indent=0
        )
        + "\n"
    )
    (temporary / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (temporary / "generation_config.json").write_text(json.dumps(_GENERATION, indent=2) + "\n")
    (temporary / "tokenizer.json").write_text(tokenizer.json_text, encoding="utf-8")
    if folder.exists():
        keep = folder.with_name(folder.name + ".old")
        shutil.rmtree(keep, ignore_errors=True)
        os.replace(folder, keep)
        for extra in keep.iterdir():  # files that are not part of the checkpoint stay
            if not (temporary / extra.name).exists() and not extra.name.endswith(".safetensors"):
                os.replace(extra, temporary / extra.name)
        shutil.rmtree(keep)
    os.replace(temporary, folder)
    return size


def read_tensors(folder):
    """{released name: float32 tensor}, scales applied; checks shards against the index."""
    folder = Path(folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    raw = {}
    for shard in sorted(set(index.values())):
        raw.update(formats.read_safetensors(folder / shard))
    if set(raw) != set(index):
        raise ValueError(f"index and shards disagree: {sorted(set(raw) ^ set(index))[:4]}")
    out = {}
    for name, tensor in raw.items():
        if name.endswith(".scale") and tensor.dtype == torch.uint8:
            continue
        scale = raw.get(name.removesuffix("weight") + "scale") if name.endswith(".weight") else None
        out[name] = tensor.float() if scale is None else formats.dequantise(tensor, scale)
    return out


def _restored(name, tensors):
    match = _EXPERT.match(name)
    if not match:
        return tensors[name]
    experts = []
    while (key := f"{match[1]}.{len(experts)}.{match[2]}.weight") in tensors:
        experts.append(tensors[key])
    return torch.stack(experts)


def load_checkpoint(folder):
    """(backbone, draft, tokenizer) with exactly the weights the engine dequantises."""
    folder = Path(folder)
    config = from_config_json(json.loads((folder / "config.json").read_text()))
    tokenizer = Tokenizer((folder / "tokenizer.json").read_text(encoding="utf-8"))
    backbone, draft = Backbone(config, tokenizer.classes()), Draft(config)
    tensors = read_tensors(folder)
    backbone.load_state_dict({n: _restored(n, tensors) for n in backbone.state_dict()})
    draft.load_state_dict({n: _restored(f"mtp.{n}", tensors) for n in draft.state_dict()})
    return backbone.eval(), draft.eval(), tokenizer
