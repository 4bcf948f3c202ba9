"""Trains the indexers with everything else frozen.

During the main run every token attends to all visible entries, so the selection has learned
nothing. Here an indexer's scores are pulled (KL divergence) towards the attention that the layers
sharing its selection pay to the entries, summed over heads and layers.
"""

import torch

from .attention import Indexer


class IndexLoss:
    """Observer of one forward pass; `total()` is the loss of all indexers."""

    def __init__(self, config, layout):
        self.config, self.layout = config, layout
        self.scores, self.target, self.keys = {}, {}, None

    def __call__(self, attention, u, low, q, kv, entries):
        c, layer, ratio = self.config, attention.layer, attention.ratio
        table = self.layout.table(ratio)
        if hasattr(attention, "compressor"):
            latent = attention.compressor(u).detach()
            with torch.enable_grad():
                self.keys = attention.indexer.keys(latent, table.at(self.layout.positions[::ratio]))
        if hasattr(attention, "indexer"):
            with torch.enable_grad():
                queries = attention.indexer.queries(
                    u.detach(), low.detach(), table.at(self.layout.positions)
                )
                self.scores[layer] = (
                    Indexer.scores(*queries, self.keys) + self.layout.entry_bias[ratio]
                )
        source = c.source(c.index_source_layer_ids, layer)
        with torch.no_grad():
            self.target[source] = self.target.get(source, 0) + self._attention(
                attention, q, kv, entries
            )

    def _attention(self, attention, q, kv, entries):
        """Attention to entries [B, T, E], summed over heads; the window and the sink take their
        share.
        """
        scale, w = self.config.head_dim**-0.5, self.layout.window
        batch, length, heads, dim = q.shape
        far = (q.flatten(1, 2) @ entries.transpose(1, 2)).view(batch, length, heads, -1) * scale
        far = far + self.layout.entry_bias[attention.ratio][:, None]
        now = kv.view(batch, -1, w, dim)
        window = torch.cat([torch.cat([torch.zeros_like(now[:, :1]), now[:, :-1]], 1), now], 2)
        near = q.view(batch, -1, w * heads, dim) @ window.transpose(-1, -2) * scale
        near = near.view(batch, -1, w, heads, 2 * w) + self.layout.window_bias[:, :, None]
        rest = torch.cat(
            [
                near.view(batch, length, heads, -1),
                attention.attn_sink[:, None].expand(batch, length, heads, 1),
            ],
            -1,
        )
        norm = torch.logaddexp(far.logsumexp(-1), rest.logsumexp(-1))
        return (far - norm[..., None]).exp().sum(2)

    def total(self):
        loss = 0
        for layer, scores in self.scores.items():
            target = self.target[layer]
            mass = target.sum(-1)
            share = target / mass.clamp(min=1e-9)[..., None]
            log_p = torch.log_softmax(scores.clamp(min=-1e9), -1)
            kl = (share * (share.clamp(min=1e-9).log() - log_p)).sum(-1)
            # Tokens that look at few entries or not at all decide little.
            weight = mass * (self.layout.positions + 1 >= 2 * self.config.compress_ratios[layer])
            loss = loss + (kl * weight).sum() / weight.sum().clamp(min=1e-6)
        return loss


def index_parameters(backbone):
    return [(name, p) for name, p in backbone.named_parameters() if ".indexer." in name]


def index_loss(backbone, tokens):
    """`tokens` [B, T], T a multiple of the window. Only indexer parameters receive gradients."""
    loss = IndexLoss(backbone.config, backbone.layout(tokens.shape[1]))
    with torch.no_grad():
        backbone(tokens, observer=loss)
    return loss.total()
