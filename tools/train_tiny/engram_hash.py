"""Engram addressing: primes, multipliers, table rows of n-grams and the token classes they hash.

Must equal what the engine derives from the same tokenizer.json, or every row is a wrong one.
"""

import math
import unicodedata

import numpy as np
import torch


def is_prime(n):
    return n == 2 or (n > 2 and n % 2 == 1 and all(n % d for d in range(3, math.isqrt(n) + 1, 2)))


def engram_primes(layers, max_ngram, heads, start):
    """primes[layer][n-gram - 2][head]: primes from `start` on, none used twice."""
    used, table = set(), []
    for _ in range(layers):
        per_layer = []
        for _ in range(max_ngram - 1):
            row, candidate = [], start - 1
            while len(row) < heads:
                candidate += 1
                if candidate not in used and is_prime(candidate):
                    used.add(candidate)
                    row.append(candidate)
            per_layer.append(row)
        table.append(per_layer)
    return table


def engram_multipliers(layer_ids, max_ngram, classes):
    """One odd int64 per layer and look-back; class * multiplier fits an int64."""
    bound = max(1, (np.iinfo(np.int64).max // classes) // 2)
    return [
        np.random.default_rng(10007 * layer).integers(0, bound, size=max_ngram, dtype=np.int64) * 2
        + 1
        for layer in layer_ids
    ]


class EngramHash:
    """Table rows for whole batches of token ids that start at position 0."""

    def __init__(self, config, token_class):
        c = config
        token_class = torch.as_tensor(token_class, dtype=torch.int64)
        assert len(token_class) == c.vocab_size
        assert int(token_class.max()) + 1 == c.engram_compressed_vocab_size
        self.token_class, self.pad = token_class, token_class[c.engram_pad_token_id]
        self.max_ngram = c.engram_max_ngram_size
        self.multipliers = [
            torch.from_numpy(m)
            for m in engram_multipliers(
                c.engram_layer_ids, self.max_ngram, c.engram_compressed_vocab_size
            )
        ]
        self.primes = [torch.tensor(p) for p in c.engram_primes()]
        self.offsets = [
            torch.cat([torch.zeros(1, dtype=torch.int64), p.flatten().cumsum(0)[:-1]]).view_as(p)
            for p in self.primes
        ]

    def rows(self, tokens):
        """tokens [B, T] -> one [B, T, n-grams * heads] per Engram layer, n-major then head."""
        classes = self.token_class[tokens]
        padded = torch.cat([self.pad.expand(len(tokens), self.max_ngram - 1), classes], 1)
        length, out = tokens.shape[1], []
        for mult, primes, offsets in zip(self.multipliers, self.primes, self.offsets):
            rolling, rows = classes * mult[0], []
            for back in range(1, self.max_ngram):
                start = self.max_ngram - 1 - back
                rolling = rolling ^ (padded[:, start : start + length] * mult[back])
                rows.append(rolling[..., None] % primes[back - 1] + offsets[back - 1])
            out.append(torch.cat(rows, -1))
        return out


def class_key(text, spelling):
    """What makes two tokens the same class; `spelling` is the entry in the byte alphabet."""
    if "\ufffd" in text:
        return spelling
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    folded = "".join(
        c.lower() if len(c.lower()) == 1 else c for c in folded if unicodedata.category(c)[0] != "M"
    )
    collapsed = ""
    for c in folded:
        space = c in " \t\r\n"
        if not space:
            collapsed += c
        elif not collapsed.endswith(" "):
            collapsed += " "
    if collapsed == " ":
        return collapsed
    return collapsed.strip() or text


def token_classes(entries):
    """Classes of `entries`, pairs (decoded text, spelling) in id order, numbered as they appear."""
    seen = {}
    return [seen.setdefault(class_key(*entry), len(seen)) for entry in entries]
