"""DSpark: the draft stages, their Markov and confidence heads, and the loss they are trained with.

Anchors are positions p of a row. A block holds the true next token t(p+1) and noise tokens, at
positions p+1 .. p+k; it attends to the rings of p and before and to itself in both directions. Its
place i predicts the token after position p+1+i.
"""

import math

import torch
from torch import nn

from . import ops
from .attention import Linear, Norm, RopeTable
from .model import Block


class DraftStage(Block):
    def __init__(self, config, stage):
        super().__init__(
            config,
            config.num_hidden_layers + stage,
            config.dspark_n_routed_experts,
            config.dspark_num_experts_per_tok,
        )
        c = config
        if stage == 0:
            self.main_proj = Linear(c.hidden_size, c.hidden_size * len(c.dspark_target_layer_ids))
            self.main_norm = Norm(c.hidden_size)
        if stage == c.num_nextn_predict_layers - 1:
            self.norm = Norm(c.hidden_size)
            self.markov_head, self.confidence_head = nn.Module(), nn.Module()
            self.markov_head.embed, self.markov_head.head = nn.Module(), nn.Module()
            rank = c.dspark_markov_rank
            self.markov_head.embed.weight = nn.Parameter(torch.randn(c.vocab_size, rank) * 0.5)
            self.markov_head.head.weight = nn.Parameter(torch.randn(c.vocab_size, rank) * 0.02)
            self.confidence_head.proj = Linear(1, c.hidden_size + rank)


class Draft(nn.ModuleList):
    """The stages; `config` must have at least one."""

    def __init__(self, config):
        super().__init__(DraftStage(config, s) for s in range(config.num_nextn_predict_layers))
        self.config = config
        self.table = RopeTable(
            config.qk_rope_head_dim,
            config.rope_theta,
            config.max_position_embeddings + config.dspark_block_size + 1,
        )

    def ring_rows(self, kept):
        """Window rows of every token for each stage, from the means kept by the backbone."""
        main = ops.rms_norm(
            self[0].main_proj(torch.cat(kept, -1)),
            self[0].main_norm.weight,
            self.config.rms_norm_eps,
        )
        table = self.table.at(torch.arange(main.shape[1]))
        return [stage.attn.window_rows(main, table) for stage in self]

    def _attention(self, attn, u, ring, places, bias):
        """u [A, k, d]; ring [A, W, D] and bias [A, W] are each anchor's window."""
        table = tuple(t.unsqueeze(-2) for t in self.table.at(places))
        low = ops.rms_norm(attn.wq_a(u), attn.q_norm.weight, self.config.rms_norm_eps)
        q = attn.wq_b(low).view(*u.shape[:2], self.config.num_attention_heads, self.config.head_dim)
        q = ops.rotate(q, *table)
        block = ops.rotate(
            ops.rms_norm(attn.wkv(u), attn.kv_norm.weight, self.config.rms_norm_eps),
            *self.table.at(places)
        )
        keys = torch.cat([ring, block], 1)
        scores = (q.flatten(1, 2) @ keys.transpose(1, 2)).view(*q.shape[:3], -1)
        bias = torch.cat([bias, bias.new_zeros(len(bias), u.shape[1])], 1)[:, None, None]
        p, _ = ops.sink_softmax(
            scores, bias, None, None, attn.attn_sink, self.config.head_dim**-0.5
        )
        o = (p.flatten(1, 2) @ keys).view_as(q)
        o = ops.rotate(o, table[0], -table[1])
        c = self.config
        grouped = o.reshape(-1, c.o_groups, attn.wo_a.weight.shape[1]).transpose(0, 1)
        lora = attn.wo_a.weight.view(c.o_groups, c.o_lora_rank, -1)
        z = torch.bmm(grouped, lora.transpose(1, 2)).transpose(0, 1)
        return attn.wo_b(z.reshape(*u.shape[:2], -1))

    def forward(self, backbone, rings, row, anchor, first_token):
        """Block outputs x [A, k, d] before the last norm, and logits without the Markov bias.

        row, anchor [A]: which row of the batch and which position p; first_token [A] is t(p+1).
        """
        c, k, w = self.config, self.config.dspark_block_size, self.config.sliding_window
        tokens = torch.full((len(anchor), k), c.dspark_noise_token_id)
        tokens[:, 0] = first_token
        back = anchor[:, None] - torch.arange(w - 1, -1, -1)
        bias = torch.zeros(back.shape).masked_fill(back < 0, -math.inf)
        places = anchor[:, None] + 1 + torch.arange(k)
        x = backbone.embed.weight[tokens.flatten()].detach().unsqueeze(1).repeat(1, c.hc_mult, 1)
        pre = torch.zeros(len(x), c.hc_mult)
        pre[:, 0] = 1
        for stage, ring in zip(self, rings):
            window = ring[row[:, None], back.clamp(min=0)]
            x, pre = stage(
                x,
                pre,
                tokens.shape,
                lambda u, s=stage, r=window: self._attention(s.attn, u, r, places, bias),
            )
        x = ops.hc_collapse(x, pre)
        hidden = ops.rms_norm(x, self[-1].norm.weight, c.rms_norm_eps)
        return x.view(*tokens.shape, -1), (hidden @ backbone.head.weight.detach().T).view(
            *tokens.shape, -1
        )

    def markov(self, previous):
        """Embedding of the previous tokens and the bias it adds to the logits."""
        embedded = self[-1].markov_head.embed.weight[previous]
        return embedded, embedded @ self[-1].markov_head.head.weight.T

    def confidence(self, x, embedded):
        return self[-1].confidence_head.proj(torch.cat([x, embedded], -1)).squeeze(-1)

    @torch.no_grad()
    def propose(self, backbone, rings, row, anchor, first_token):
        """Greedy drafts [A, k] and confidence logits [A, k]."""
        x, logits = self(backbone, rings, row, anchor, first_token)
        previous, drafts, confidence = first_token, [], []
        for i in range(logits.shape[1]):
            embedded, bias = self.markov(previous)
            confidence.append(self.confidence(x[:, i], embedded))
            previous = (logits[:, i] + bias).argmax(-1)
            drafts.append(previous)
        return torch.stack(drafts, 1), torch.stack(confidence, 1)

    def gates(self):
        return [stage.ffn.gate for stage in self]


def draft_loss(draft, backbone, rings, row, anchor, tokens, wanted, target_logits, decay=0.8):
    """0.1 cross entropy + 0.9 total variation + 1.0 confidence, decaying along the block.

    wanted [A, k] bool: the place predicts answer text; target_logits [A, k, V]: the backbone's
    next-token logits at positions p+1 .. p+k. Returns the loss and [2, k] sums of overlap and of
    places counted.
    """
    k = draft.config.dspark_block_size
    known = tokens[row[:, None], anchor[:, None] + 1 + torch.arange(k + 1)]  # t(p+1) .. t(p+k+1)
    x, logits = draft(backbone, rings, row, anchor, known[:, 0])
    embedded, bias = draft.markov(known[:, :k])
    log_q = torch.log_softmax(logits + bias, -1)
    p = torch.softmax(target_logits, -1)
    cross_entropy = -log_q.gather(-1, known[:, 1:, None]).squeeze(-1)
    overlap = torch.minimum(p, log_q.exp()).sum(-1)
    confidence = nn.functional.binary_cross_entropy_with_logits(
        draft.confidence(x, embedded), overlap.detach().clamp(0, 1), reduction="none"
    )
    weight = wanted * decay ** torch.arange(k, dtype=torch.float32)
    loss = 0.1 * cross_entropy + 0.9 * (1 - overlap) + confidence
    seen = torch.stack([(overlap.detach() * wanted).sum(0), wanted.sum(0)])
    return (loss * weight).sum() / weight.sum().clamp(min=1), seen
