"""The three stages of a run: the backbone, then its indexers, then the draft module.

A stage turns (batch, progress) into one optimiser step and returns numbers for the log.
"""

import torch
import torch.nn.functional as F

from . import distill
from .draft import draft_loss
from .optim import Optimiser, rate_factor

BALANCE_EVERY, BALANCE_STEP = 2, 0.01
INDEX_LENGTHS = {256: 4, 512: 4, 1024: 4, 2048: 2}
ANCHORS = 192  # draft blocks per step


def balance(gates, step, factor):
    if step % BALANCE_EVERY == BALANCE_EVERY - 1:
        for gate in gates:
            gate.balance(BALANCE_STEP * factor)


class MainStage:
    """Next-token loss on answers, all parameters of the backbone but the indexers."""

    name = "main"

    def __init__(self, backbone, draft, stream):
        self.backbone, self.stream = backbone, stream
        skip = {name for name, _ in distill.index_parameters(backbone)}
        named = [(n, p) for n, p in backbone.named_parameters() if n not in skip]
        self.optimiser = Optimiser(named, backbone.config.o_groups)

    def batch(self, step, progress):
        return self.stream.batch(step, progress)

    def step(self, batch, step, progress):
        model, factor = self.backbone, rate_factor(progress)
        hidden = model(batch.tokens)[:, :-1][batch.wanted[:, 1:]]
        loss = F.cross_entropy(model.logits(hidden), batch.tokens[:, 1:][batch.wanted[:, 1:]])
        loss.backward()
        load = torch.stack([gate.load for gate in model.gates()])
        norm = self.optimiser.step(factor)
        balance(model.gates(), step, factor)
        return dict(
            loss=float(loss.detach()),
            norm=norm,
            rate=factor,
            imbalance=float((load.amax(1) / load.mean(1).clamp(min=1)).max()),
        )


class IndexStage:
    """KL of index scores to attention, on rows long enough for a selection to matter."""

    name = "indexer"

    def __init__(self, backbone, draft, stream):
        self.backbone, self.stream = backbone, stream
        self.optimiser = Optimiser(distill.index_parameters(backbone), backbone.config.o_groups)

    def batch(self, step, progress):
        """The last phase's rows, of lengths chosen here; another range of row seeds than the main
        run's.
        """
        return self.stream.batch(10**8 + step, 1.0, INDEX_LENGTHS)

    def step(self, batch, step, progress):
        factor = rate_factor(progress, warmup=0.05)
        loss = distill.index_loss(self.backbone, batch.tokens)
        loss.backward()
        norm = self.optimiser.step(factor)
        for gate in self.backbone.gates():
            gate.load.zero_()
        return dict(loss=float(loss.detach()), norm=norm, rate=factor)


class DraftStageTraining:
    """DSpark on random anchors in answers, backbone frozen."""

    name = "draft"

    def __init__(self, backbone, draft, stream):
        self.backbone, self.draft, self.stream = backbone, draft, stream
        self.optimiser = Optimiser(draft.named_parameters(), backbone.config.o_groups)

    def batch(self, step, progress):
        return self.stream.batch(2 * 10**8 + step, 1.0)

    def step(self, batch, step, progress):
        factor, k = rate_factor(progress), self.draft.config.dspark_block_size
        tokens, kept = batch.tokens, []
        with torch.no_grad():
            hidden = self.backbone(tokens, kept=kept)
        # The first draft is for p + 2 and must be answer text.
        row, place = batch.wanted[:, 2 : tokens.shape[1] - k + 1].nonzero(as_tuple=True)
        if not len(row):
            return {}
        choice = torch.randperm(len(row), generator=torch.Generator().manual_seed(step))[:ANCHORS]
        row, anchor = row[choice], place[choice]
        ahead = anchor[:, None] + 1 + torch.arange(k)
        with torch.no_grad():
            targets = self.backbone.logits(hidden[row[:, None], ahead])
        wanted = batch.wanted[row[:, None], ahead + 1]
        loss, seen = draft_loss(
            self.draft,
            self.backbone,
            self.draft.ring_rows(kept),
            row,
            anchor,
            tokens,
            wanted,
            targets,
        )
        loss.backward()
        norm = self.optimiser.step(factor)
        balance(self.draft.gates(), step, factor)
        for gate in self.backbone.gates():
            gate.load.zero_()
        overlap = seen[0] / seen[1].clamp(min=1)
        return dict(
            loss=float(loss.detach()), norm=norm, rate=factor, overlap=float(overlap.mean())
        )


STAGES = (MainStage, IndexStage, DraftStageTraining)
