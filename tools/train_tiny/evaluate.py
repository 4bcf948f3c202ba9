"""Accuracy by family: whole answers, greedy. Teacher forcing gives the verdict without generating,
since a greedy answer is right exactly if every step's best token is.
"""

from collections import defaultdict

import torch

from .render import answer_text, encode, render_prompt
from .tokenizer import DSML, END_THINK, EOS

TOKENS_AT_ONCE = 8192


def answer_ids(item, tokenizer):
    """(ids of prompt and answer, length of the prompt) of an evaluation item with its `answer`
    message.
    """
    prompt, _ = encode(render_prompt(item), tokenizer)
    ids, text = list(prompt), answer_text(item["answer"], item.get("thinking", False))
    while text:
        at = {token: text.find(token) for token in (END_THINK, DSML) if token in text}
        token = min(at, key=at.get) if at else None
        plain = text[: at[token]] if token else text
        if plain:
            ids += tokenizer.encode(plain)
        if token:
            ids.append(tokenizer.special(token))
        text = text[len(plain) + len(token or "") :]
    return ids + [tokenizer.special(EOS)], len(prompt)


def _batches(sequences):
    """Indices of sequences of similar length, together at most TOKENS_AT_ONCE."""
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i][0]))
    batch = []
    for i in order:
        if batch and len(sequences[i][0]) * (len(batch) + 1) > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


@torch.no_grad()
def accuracy(backbone, tokenizer, items, selects=False):
    """{family: (right, tried, share of right tokens)}."""
    backbone.eval()
    sequences = [answer_ids(item, tokenizer) for item in items]
    result = defaultdict(lambda: [0, 0, 0, 0])
    for batch in _batches(sequences):
        tokens = torch.zeros(
            len(batch), max(len(sequences[i][0]) for i in batch), dtype=torch.int64
        )
        for row, i in enumerate(batch):
            tokens[row, : len(sequences[i][0])] = torch.tensor(sequences[i][0])
        hidden = backbone(tokens, selects=selects)
        for row, i in enumerate(batch):
            ids, start = sequences[i]
            best = backbone.logits(hidden[row, start - 1 : len(ids) - 1]).argmax(-1)
            hits = best == torch.tensor(ids[start:])
            entry = result[items[i]["family"]]
            entry[0] += bool(hits.all())
            entry[1] += 1
            entry[2] += int(hits.sum())
            entry[3] += len(hits)
    backbone.train()
    return {
        family: (right, tried, hits / total)
        for family, (right, tried, hits, total) in sorted(result.items())
    }


@torch.no_grad()
def acceptance(backbone, draft, tokenizer, items):
    """{family: (mean accepted drafts, [acceptance at each place given the ones before], anchors)},
    greedy.
    """
    backbone.eval(), draft.eval()
    k = draft.config.dspark_block_size
    sums = defaultdict(lambda: [0.0, torch.zeros(k), torch.zeros(k), 0])
    for item in items:
        ids, start = answer_ids(item, tokenizer)
        tokens, kept = torch.tensor([ids]), []
        best = backbone.logits(backbone(tokens, kept=kept))[0].argmax(-1)
        # Anchor p: the block starts with token p + 1, the first draft is for p + 2.
        anchor = torch.arange(start - 1, len(ids) - 2)
        if not len(anchor):
            continue
        drafts, _ = draft.propose(
            backbone, draft.ring_rows(kept), torch.zeros_like(anchor), anchor, tokens[0, anchor + 1]
        )
        place = anchor[:, None] + 1 + torch.arange(k)
        inside = place < len(ids) - 1
        match = (drafts == best[place.clamp(max=len(ids) - 1)]) & inside
        before = (
            torch.cat([torch.ones(len(anchor), 1, dtype=torch.bool), match[:, :-1]], 1)
            .int()
            .cumprod(1)
            .bool()
        )
        entry = sums[item["family"]]
        entry[0] += float(match.int().cumprod(1).sum())
        entry[1] += (match & before).sum(0)
        entry[2] += (before & inside).sum(0)
        entry[3] += len(anchor)
    backbone.train(), draft.train()
    return {
        family: (total / count, (hit / tried.clamp(min=1)).tolist(), count)
        for family, (total, hit, tried, count) in sorted(sums.items())
    }
