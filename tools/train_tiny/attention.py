"""Window + compressed attention of one layer, for whole rows at once.

Queries go in chunks of one window W: a chunk sees its own and the previous chunk's window rows, and
compressed entries. Long rows go in segments, so that scores of entries in the future are not
computed and the backward pass recomputes a segment instead of keeping its scores.
"""

import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from . import ops

SEGMENT_TOKENS = 512  # longer rows are split; a multiple of every window used here


class RopeTable:
    """cos and sin of float32 angles position * frequency, as the engine has them."""

    def __init__(self, dim, theta, length, yarn=None):
        # In float32 throughout: the table is part of the model.
        freq = 1.0 / torch.pow(
            torch.tensor(float(theta)), torch.arange(0, dim, 2, dtype=torch.float32) / dim
        )
        if yarn is not None:

            def turns_to_dim(turns):
                return (
                    dim
                    * math.log(yarn["original_max_position_embeddings"] / (turns * 2 * math.pi))
                    / (2 * math.log(theta))
                )

            low = max(math.floor(turns_to_dim(yarn["beta_fast"])), 0)
            high = min(math.ceil(turns_to_dim(yarn["beta_slow"])), dim - 1)
            ramp = (torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 1e-3)
            slow = ramp.clamp(0, 1)
            freq = freq / yarn["factor"] * slow + freq * (1 - slow)
        angle = torch.arange(length, dtype=torch.float32)[:, None] * freq
        self.cos, self.sin = angle.double().cos().float(), angle.double().sin().float()

    def at(self, positions):
        return self.cos[positions], self.sin[positions]


class Layout:
    """What depends only on the length of the rows: positions, tables and masks."""

    def __init__(self, config, length):
        c, w = config, config.sliding_window
        assert length % w == 0
        self.length, self.chunks, self.window = length, length // w, w
        self.positions = torch.arange(length)
        self.tables = {
            0: RopeTable(c.qk_rope_head_dim, c.rope_theta, length),
            1: RopeTable(c.qk_rope_head_dim, c.compress_rope_theta, length, c.rope_scaling),
        }
        row, col = torch.arange(w)[:, None], torch.arange(2 * w)[None, :]
        visible = (col > row) & (col <= row + w)
        bias = torch.zeros(self.chunks, w, 2 * w).masked_fill(~visible, -math.inf)
        bias[0, :, :w] = -math.inf
        self.window_bias = bias
        self.entry_bias = {}
        for ratio in sorted(set(c.compress_ratios) - {0}):
            seen = torch.arange(length // ratio)[None, :] < (self.positions[:, None] + 1) // ratio
            self.entry_bias[ratio] = torch.zeros(seen.shape).masked_fill(~seen, -math.inf)

    def table(self, ratio):
        return self.tables[1 if ratio else 0]


def _segment(q, window, entries, window_bias, entry_bias, sink):
    """q [B, C, W, H, D], window [B, C, 2W, D], entries [B, E, D] or None; biases [(B or 1,) C, W,
    keys].
    """
    batch, chunks, w, heads, dim = q.shape
    rows = q.reshape(batch, chunks, w * heads, dim)
    near = (rows @ window.transpose(-1, -2)).view(batch, chunks, w, heads, -1)
    far = None
    if entries is not None:
        far = (rows.view(batch, -1, dim) @ entries.transpose(-1, -2)).view(
            batch, chunks, w, heads, -1
        )
        entry_bias = entry_bias.unsqueeze(-2)
    near, far = ops.sink_softmax(near, window_bias.unsqueeze(-2), far, entry_bias, sink, dim**-0.5)
    out = near.reshape(batch, chunks, w * heads, -1) @ window
    if entries is not None:
        out = out + (far.reshape(batch, chunks * w * heads, -1) @ entries).view_as(out)
    return out.view(batch, chunks, w, heads, dim)


def attend(q, kv, entries, sink, layout, ratio, entry_bias=None):
    """q [B, T, H, D], kv [B, T, D], entries [B, T / ratio, D] or None -> [B, T, H, D].

    `entry_bias` [B, T, E] (0 or -inf) replaces the causal one when a selection is applied.
    """
    batch, length, heads, dim = q.shape
    w, chunks = layout.window, layout.chunks
    now = kv.view(batch, chunks, w, dim)
    before = torch.cat([torch.zeros_like(now[:, :1]), now[:, :-1]], 1)
    window = torch.cat([before, now], 2)
    q = q.view(batch, chunks, w, heads, dim)
    if entries is not None and entry_bias is None:
        entry_bias = layout.entry_bias[ratio][None]
    per_segment = max(SEGMENT_TOKENS // w, 1)
    out = []
    for first in range(0, chunks, per_segment):
        last = min(first + per_segment, chunks)
        part = far = None
        if entries is not None:
            seen = last * w // ratio
            part = entries[:, :seen]
            far = entry_bias[:, first * w : last * w, :seen].reshape(-1, last - first, w, seen)
        inputs = (
            q[:, first:last],
            window[:, first:last],
            part,
            layout.window_bias[first:last],
            far,
            sink,
        )
        if chunks > per_segment and torch.is_grad_enabled():
            out.append(checkpoint(_segment, *inputs, use_reentrant=False))
        else:
            out.append(_segment(*inputs))
    return torch.cat(out, 1).view(batch, length, heads, dim)


class Linear(nn.Module):
    """A weight without bias, initialised to keep variance times `gain` squared."""

    def __init__(self, rows, cols, gain=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, cols) * gain * cols**-0.5)

    def forward(self, x):
        return x @ self.weight.T


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))


class Compressor(nn.Module):
    """Latents of `ratio` consecutive tokens, pooled per channel by a softmax over the group."""

    def __init__(self, config, ratio):
        super().__init__()
        self.ratio, self.eps = ratio, config.rms_norm_eps
        self.wkv = Linear(config.head_dim, config.hidden_size)
        if ratio > 1:
            self.wgate = Linear(config.head_dim, config.hidden_size)
        self.norm = Norm(config.head_dim)

    def forward(self, u):
        latent = self.wkv(u)
        if self.ratio > 1:
            grouped = (len(u), u.shape[1] // self.ratio, self.ratio, -1)
            weight = torch.softmax(self.wgate(u).view(grouped), 2)
            latent = (latent.view(grouped) * weight).sum(2)
        return ops.rms_norm(latent, self.norm.weight, self.eps)


class Indexer(nn.Module):
    """Scores entries for queries; only KV sources own keys (`wk`, `k_norm`)."""

    def __init__(self, config, owns_keys):
        super().__init__()
        c = config
        self.heads, self.dim, self.eps = c.index_n_heads, c.index_head_dim, c.rms_norm_eps
        self.wq_b = Linear(self.heads * self.dim, c.q_lora_rank)
        self.weights_proj = Linear(self.heads, c.hidden_size)
        if owns_keys:
            self.wk = Linear(self.dim, c.head_dim)
            self.k_norm = Norm(self.dim)

    def keys(self, latent, table):
        return ops.rotate(ops.rms_norm(self.wk(latent), self.k_norm.weight, self.eps), *table)

    def queries(self, u, low, table):
        """Queries [B, T, heads, dim] and head weights [B, T, heads]."""
        cos, sin = table
        q = self.wq_b(low).view(*u.shape[:2], self.heads, self.dim)
        q = ops.rotate(q, cos[:, None], sin[:, None])
        return q, self.weights_proj(u) * (self.dim**-0.5 * self.heads**-0.5)

    @staticmethod
    def scores(queries, weights, keys):
        """[B, T, E]: heads summed after a relu; weights may be negative."""
        total = 0
        for head in range(queries.shape[2]):
            total = (
                total
                + torch.relu(queries[:, :, head] @ keys.transpose(1, 2)) * weights[:, :, head, None]
            )
        return total


class Attention(nn.Module):
    """One layer's attention; which optional parts it has follows from the layer's role."""

    def __init__(self, config, layer, output_gain):
        super().__init__()
        c, self.config, self.layer = config, config, layer
        self.ratio = c.ratio(layer)
        heads = c.num_attention_heads
        self.attn_sink = nn.Parameter(torch.zeros(heads))
        self.wq_a = Linear(c.q_lora_rank, c.hidden_size)
        self.q_norm = Norm(c.q_lora_rank)
        self.wq_b = Linear(heads * c.head_dim, c.q_lora_rank)
        self.wkv = Linear(c.head_dim, c.hidden_size)
        self.kv_norm = Norm(c.head_dim)
        self.wo_a = Linear(c.o_groups * c.o_lora_rank, heads * c.head_dim // c.o_groups)
        self.wo_b = Linear(c.hidden_size, c.o_groups * c.o_lora_rank, output_gain)
        compressed = self.ratio > 0
        if compressed and layer in c.kv_source_layer_ids:
            self.compressor = Compressor(c, self.ratio)
        if compressed and layer in c.index_source_layer_ids:
            self.indexer = Indexer(c, layer in c.kv_source_layer_ids)

    def queries(self, u, table):
        c, (cos, sin) = self.config, table
        low = ops.rms_norm(self.wq_a(u), self.q_norm.weight, c.rms_norm_eps)
        q = self.wq_b(low).view(*u.shape[:2], c.num_attention_heads, c.head_dim)
        return low, ops.rotate(q, cos[:, None], sin[:, None])

    def window_rows(self, u, table):
        row = ops.rms_norm(self.wkv(u), self.kv_norm.weight, self.config.rms_norm_eps)
        return ops.rotate(row, *table)

    def project(self, o, table):
        """o [B, T, H, D] in the rotated frame -> [B, T, hidden]."""
        c, (cos, sin) = self.config, table
        o = ops.rotate(o, cos[:, None], -sin[:, None])
        grouped = o.reshape(-1, c.o_groups, self.wo_a.weight.shape[1]).transpose(0, 1)
        lora = self.wo_a.weight.view(c.o_groups, c.o_lora_rank, -1)
        z = torch.bmm(grouped, lora.transpose(1, 2)).transpose(0, 1)
        return self.wo_b(z.reshape(*o.shape[:2], -1))

    def forward(self, u, layout, shared):
        """`shared` carries entries, index keys and the selection from source to later layers."""
        table = layout.table(self.ratio).at(layout.positions)
        low, q = self.queries(u, table)
        kv = self.window_rows(u, table)
        entries = bias = None
        if self.ratio:
            if hasattr(self, "compressor"):
                latent = self.compressor(u)
                first = layout.positions[:: self.ratio]
                entry_table = layout.table(self.ratio).at(first)
                shared.entries = ops.rotate(latent, *entry_table)
                if shared.selects:
                    shared.index_keys = self.indexer.keys(latent, entry_table)
            if shared.selects and hasattr(self, "indexer"):
                shared.select(self.indexer.queries(u, low, table), self)
            entries, bias = shared.entries, shared.bias
        if shared.observer is not None and self.ratio:
            shared.observer(self, u, low, q, kv, entries)
        o = attend(q, kv, entries, self.attn_sink, layout, self.ratio, bias)
        return self.project(o, table)
