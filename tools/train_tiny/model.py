"""The V4.1 text backbone for training: whole rows that start at position 0, float32.

Parameters carry the released tensor names, except that the routed experts of a layer are stacked.
"""

import math

import torch
from torch import nn

from . import ops
from .attention import Attention, Indexer, Layout, Linear, Norm
from .engram_hash import EngramHash

LAYOUTS_KEPT = 10


class Experts(nn.Module):
    """Routed experts of a layer as stacked weights [experts, rows, cols]."""

    def __init__(self, count, hidden, inner, output_gain):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(count, inner, hidden) * hidden**-0.5)
        self.w3 = nn.Parameter(torch.randn(count, inner, hidden) * hidden**-0.5)
        self.w2 = nn.Parameter(torch.randn(count, hidden, inner) * inner**-0.5 * output_gain)


class SharedExpert(nn.Module):
    def __init__(self, hidden, inner, output_gain, limit):
        super().__init__()
        self.limit = limit
        self.w1, self.w3 = Linear(inner, hidden), Linear(inner, hidden)
        self.w2 = Linear(hidden, inner, output_gain)

    def forward(self, x):
        return self.w2(ops.swiglu(self.w1(x), self.w3(x), self.limit))


class Gate(nn.Module):
    """Router; `bias` only selects and is moved by `balance`, never by a gradient."""

    def __init__(self, experts, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, hidden) * hidden**-0.5)
        self.register_buffer("bias", torch.zeros(experts))
        self.register_buffer("load", torch.zeros(experts), persistent=False)

    def balance(self, step_size):
        """Moves every expert's bias towards the mean load since the last call."""
        self.bias += step_size * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


class MoE(nn.Module):
    def __init__(self, config, experts, top_k, output_gain):
        super().__init__()
        c = config
        self.top_k, self.limit, self.scale = top_k, c.swiglu_limit, c.routed_scaling_factor
        self.gate = Gate(experts, c.hidden_size)
        self.experts = Experts(experts, c.hidden_size, c.moe_intermediate_size, output_gain)
        self.shared_experts = SharedExpert(
            c.hidden_size, c.moe_intermediate_size, output_gain, c.swiglu_limit
        )

    def route(self, x):
        scores = torch.sqrt(nn.functional.softplus(x @ self.gate.weight.T))
        ids = (scores.detach() + self.gate.bias).topk(self.top_k, -1).indices
        picked = scores.gather(1, ids)
        return ids, picked / (picked.sum(-1, keepdim=True) + 1e-20) * self.scale

    def forward(self, x):
        """x [N, d]. Tokens are sorted by expert, so that each expert sees one dense product."""
        ids, weights = self.route(x)
        order = ids.flatten().argsort(stable=True)
        counts = torch.bincount(ids.flatten(), minlength=len(self.gate.bias))
        if self.training:
            self.gate.load += counts
        token = order // self.top_k
        # One split each: slices would cost a zero-filled gradient of the whole per expert.
        counts, w = counts.tolist(), self.experts
        pieces = zip(
            x[token].split(counts),
            weights.flatten()[order][:, None].split(counts),
            w.w1.unbind(),
            w.w3.unbind(),
            w.w2.unbind(),
        )
        parts = [
            (ops.swiglu(part @ w1.T, part @ w3.T, self.limit) * weight) @ w2.T
            for part, weight, w1, w3, w2 in pieces
        ]
        # Each token's outputs back side by side: a gather, so the sum has a fixed order.
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        routed = torch.cat(parts)[back].view(len(x), self.top_k, -1).sum(1)
        return routed + self.shared_experts(x)


class Engram(nn.Module):
    """Adds hashed n-gram memory to every stream through a gate."""

    def __init__(self, config, table_rows, output_gain):
        super().__init__()
        c, self.config = config, config
        width = (c.engram_max_ngram_size - 1) * c.engram_n_heads * c.engram_head_dim
        self.embed = nn.Module()
        self.embed.weight = nn.Parameter(torch.randn(table_rows, c.engram_head_dim) * 0.5)
        self.wkv = Linear(c.hidden_size * (c.hc_mult + 1), width, output_gain)
        self.q_weight = nn.Parameter(torch.ones(c.hc_mult, c.hidden_size))
        self.k_weight = nn.Parameter(torch.ones(c.hc_mult, c.hidden_size))

    def forward(self, x, rows):
        """x [N, h, d], rows [N, n-grams * heads]."""
        kv = self.wkv(self.embed.weight[rows].flatten(1))
        return ops.engram(x, kv, self.q_weight * self.k_weight, self.config.rms_norm_eps)


class Block(nn.Module):
    """Attention and MoE, each between a collapse and an expansion of the streams."""

    def __init__(self, config, layer, experts, top_k):
        super().__init__()
        c, self.config = config, config
        gain = (2 * c.num_hidden_layers) ** -0.5
        self.attn = Attention(c, layer, gain)
        self.ffn = MoE(c, experts, top_k, gain)
        self.attn_norm, self.ffn_norm = Norm(c.hidden_size), Norm(c.hidden_size)
        for site, name in enumerate(("attn", "ffn")):
            h = c.hc_mult
            self.register_parameter(
                f"hc_{name}_fn",
                nn.Parameter(
                    torch.randn(h * (2 + h), h * c.hidden_size) * (h * c.hidden_size) ** -0.5
                ),
            )
            self.register_parameter(f"hc_{name}_scale", nn.Parameter(torch.full((3,), 0.1)))
            base = torch.zeros(h * (2 + h))
            # Unequal from the start: four equal streams would stay equal.
            base[:h] = -1.5
            base[(2 * layer + site) % h] = 1.5
            base[h : 2 * h] = torch.randn(h) * 0.5
            base[2 * h :] = (4 * torch.eye(h) - 4).flatten()
            self.register_parameter(f"hc_{name}_base", nn.Parameter(base))

    def mix(self, x, site):
        return ops.hc_mix(
            x,
            getattr(self, f"hc_{site}_fn"),
            getattr(self, f"hc_{site}_scale"),
            getattr(self, f"hc_{site}_base"),
            self.config,
        )

    def collapse(self, x, pre, norm):
        return ops.rms_norm(ops.hc_collapse(x, pre), norm.weight, self.config.rms_norm_eps)

    def forward(self, x, pre, shape, attention):
        """x [N, h, d], pre [N, h], shape (B, T); `attention` maps [B, T, d] to [B, T, d]."""
        next_pre, post, comb = self.mix(x, "attn")
        u = self.collapse(x, pre, self.attn_norm)
        y = attention(u.view(*shape, -1)).reshape(len(x), -1)
        x = ops.hc_expand(y, x, post, comb)
        last_pre, post, comb = self.mix(x, "ffn")
        u = self.collapse(x, next_pre, self.ffn_norm)
        return ops.hc_expand(self.ffn(u), x, post, comb), last_pre


class Shared:
    """What compressing layers hand to later ones during one forward pass."""

    def __init__(self, config, layout, selects=False, observer=None):
        self.config, self.layout, self.selects, self.observer = config, layout, selects, observer
        self.entries = self.index_keys = self.bias = self.pool = None

    def select(self, queries, attention):
        """Sets `bias` from the top index scores, and the candidate pool at its source."""
        c, layer = self.config, attention.layer
        scores = Indexer.scores(*queries, self.index_keys)
        scores = scores + self.layout.entry_bias[attention.ratio]
        if layer == c.candidate_source_layer_id:
            self.pool = self._candidates(scores)
        elif self.pool is not None and layer > c.candidate_source_layer_id:
            scores = scores.masked_fill(~self.pool, -math.inf)
        kept = _top_mask(scores, c.index_topk)
        self.bias = torch.zeros_like(scores).masked_fill(~kept, -math.inf)

    def _candidates(self, scores):
        """Mask over entries: the best blocks by their best visible entry, the newest always in."""
        c, size = self.config, self.config.candidate_block_size
        batch, length, entries = scores.shape
        blocks = -(-entries // size)
        padded = nn.functional.pad(scores, (0, blocks * size - entries), value=-math.inf)
        best = padded.view(batch, length, blocks, size).amax(-1)
        visible = (self.layout.positions + 1) // c.ratio(c.candidate_source_layer_id)
        newest = ((visible - 1) // size).clamp(min=0).expand(batch, -1).unsqueeze(-1)
        best = best.scatter(-1, newest, math.inf)
        return _top_mask(best, c.candidate_topk_blocks).repeat_interleave(size, -1)[..., :entries]


def _top_mask(scores, k):
    """Mask of the k largest along the last axis, lower index first; never -inf ones."""
    order = scores.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    mask = torch.zeros(scores.shape, dtype=torch.bool).scatter_(-1, order, True)
    return mask & (scores > -math.inf)


class Backbone(nn.Module):
    """Tokens [B, T] to normed hidden states [B, T, d]; `head.weight` turns those into logits."""

    def __init__(self, config, token_class):
        super().__init__()
        c, self.config = config, config
        self.hash = EngramHash(c, token_class)
        self.embed = nn.Module()
        self.embed.weight = nn.Parameter(torch.randn(c.vocab_size, c.hidden_size) * 0.5)
        self.head = nn.Module()
        self.head.weight = nn.Parameter(torch.randn(c.vocab_size, c.hidden_size) * 0.02)
        self.norm = Norm(c.hidden_size)
        self.layers = nn.ModuleList(
            Block(c, i, c.n_routed_experts, c.num_experts_per_tok)
            for i in range(c.num_hidden_layers)
        )
        gain = (2 * c.num_hidden_layers) ** -0.5
        for layer, primes in zip(c.engram_layer_ids, c.engram_primes()):
            self.layers[layer].engram = Engram(c, sum(map(sum, primes)), gain)
        self._layouts = {}

    def layout(self, length):
        if length not in self._layouts:
            if len(self._layouts) >= LAYOUTS_KEPT:  # those of long rows hold many megabytes
                self._layouts.clear()
            self._layouts[length] = Layout(self.config, length)
        return self._layouts[length]

    def forward(self, tokens, selects=False, observer=None, kept=None):
        """`selects` applies the indexers; `kept`, a list, receives what the draft module reads."""
        c, (batch, length) = self.config, tokens.shape
        shape = (batch, -(-length // c.sliding_window) * c.sliding_window)
        tokens = nn.functional.pad(tokens, (0, shape[1] - length), value=c.engram_pad_token_id)
        layout = self.layout(shape[1])
        rows = [r.flatten(0, 1) for r in self.hash.rows(tokens)]
        x = self.embed.weight[tokens.flatten()].unsqueeze(1).repeat(1, c.hc_mult, 1)
        pre = torch.zeros(len(x), c.hc_mult)
        pre[:, 0] = 1
        shared = Shared(c, layout, selects, observer)
        for i, block in enumerate(self.layers):
            if i in c.engram_layer_ids:
                x = block.engram(x, rows[c.engram_layer_ids.index(i)])
            if kept is not None and i in c.dspark_target_layer_ids:
                kept.append(x.mean(1).view(*shape, -1)[:, :length])
            x, pre = block(x, pre, shape, lambda u, a=block.attn: a(u, layout, shared))
        hidden = ops.rms_norm(ops.hc_collapse(x, pre), self.norm.weight, c.rms_norm_eps)
        return hidden.view(*shape, -1)[:, :length]

    def logits(self, hidden):
        return hidden @ self.head.weight.T

    def gates(self):
        return [block.ffn.gate for block in self.layers]
