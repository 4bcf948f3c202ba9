"""Muon for projections and experts, AdamW for everything else.

Muon orthogonalises the momentum of a matrix by five Newton-Schulz steps. Matrices of one shape are
treated together as a batch; the experts of a layer and the groups of wo_a are matrices of their
own.
"""

import torch

MUON_RATE, ADAM_RATE = 0.02, 2e-3
_ADAM_NAMES = (
    "embed.weight",
    "head.weight",
    "gate.weight",
    "markov_head",
    "confidence_head",
    "weights_proj",
)


def is_muon(name, parameter):
    return (
        parameter.ndim >= 2
        and "hc_" not in name
        and not name.endswith(("q_weight", "k_weight"))
        and not any(part in name for part in _ADAM_NAMES)
    )


def orthogonalise(batch, steps=5):
    """[n, rows, cols] -> nearly orthogonal matrices of the same row and column spaces."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = batch / (batch.norm(dim=(1, 2), keepdim=True) + 1e-7)
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    for _ in range(steps):
        gram = torch.bmm(x, x.transpose(1, 2))
        mix = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, mix, x, beta=a)
    return x.transpose(1, 2) if tall else x


class Muon:
    """`groups` maps a parameter's name to how many matrices its rows hold (experts are 3-D
    already).
    """

    def __init__(self, named, groups, rate=MUON_RATE, momentum=0.95, decay=0.01):
        self.rate, self.momentum, self.decay = rate, momentum, decay
        self.named, self.groups = dict(named), groups
        self.buffers = {name: torch.zeros_like(p) for name, p in self.named.items()}

    def _matrices(self, name, tensor):
        if tensor.ndim == 3:
            return tensor
        return tensor.view(self.groups.get(name, 1), -1, tensor.shape[1])

    @torch.no_grad()
    def step(self, factor):
        by_shape = {}
        for name, p in self.named.items():
            if p.grad is None:
                continue
            buffer = self.buffers[name].mul_(self.momentum).add_(p.grad)
            ahead = self._matrices(name, p.grad.add(buffer, alpha=self.momentum))
            by_shape.setdefault(ahead.shape[1:], []).append((name, ahead))
        rate = self.rate * factor
        for (rows, cols), members in by_shape.items():
            updates = orthogonalise(torch.cat([m for _, m in members])) * max(1, rows / cols) ** 0.5
            for (name, ahead), update in zip(members, updates.split([len(m) for _, m in members])):
                p = self.named[name]
                p.mul_(1 - rate * self.decay)
                p.sub_(update.reshape(p.shape), alpha=rate)

    def zero_grad(self):
        for p in self.named.values():
            p.grad = None


class Optimiser:
    """Both optimisers over `named` parameters, with one rate factor and gradient clipping."""

    def __init__(self, named, wo_groups, clip=1.0):
        named = list(named)
        muon = [(n, p) for n, p in named if is_muon(n, p)]
        adam = [p for n, p in named if not is_muon(n, p)]
        groups = {n: wo_groups for n, _ in muon if n.endswith("wo_a.weight")}
        self.muon, self.clip = Muon(muon, groups), clip
        self.adam = torch.optim.AdamW(
            adam, lr=ADAM_RATE, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.01, fused=True
        )
        self.parameters = [p for _, p in named]

    def step(self, factor):
        """One update; returns the gradient norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        for group in self.adam.param_groups:
            group["lr"] = ADAM_RATE * factor
        self.adam.step()
        self.muon.step(factor)
        for p in self.parameters:
            p.grad = None
        return float(norm)

    def state_dict(self):
        return dict(adam=self.adam.state_dict(), muon=self.muon.buffers)

    def load_state_dict(self, state):
        self.adam.load_state_dict(state["adam"])
        for name, buffer in self.muon.buffers.items():
            buffer.copy_(state["muon"][name])


def rate_factor(progress, warmup=0.015, decay=0.4):
    """Linear warm-up, constant, linear decay to zero over the last `decay` of the run."""
    return min(1.0, (progress + 1e-4) / warmup, max((1 - progress) / decay, 0.0))
