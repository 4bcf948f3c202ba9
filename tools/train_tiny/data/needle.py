"""Needles: codes hidden in a long text of filler, asked for at its end."""

from . import words
from .turn import Turn

FILLER = [
    "The {a} stood next to the {b} for a long time.",
    "Nobody in {c} had seen the {a} before.",
    "{n} walked from {c} to {d} with a {k} {a}.",
    "In the {m} the {a} was {k}.",
    "{n} sold the {a} and bought a {b}.",
    "It rained in {c}, so {n} stayed near the {b}.",
    "There was a {k} {b} behind the {a}.",
]
HIDE = ["The code of {n} is {v}.", "{n} has the code {v}.", "Remember: the code of {n} is {v}."]
FILLER_TOKENS, CODE_TOKENS = 11, 16  # of one sentence, about
TURN_TOKENS = 21  # of one question and its answer, about
ASK = ["What is the code of {n}?", "Which code has {n}?", "Tell me the code of {n}."]


def filler(rng):
    return rng.choice(FILLER).format(
        a=rng.choice(words.NOUNS),
        b=rng.choice(words.NOUNS),
        c=rng.choice(words.CITIES),
        d=rng.choice(words.CITIES),
        n=rng.choice(words.NAMES),
        k=rng.choice(words.COLORS),
        m=rng.choice(("morning", "evening", "winter", "summer")),
    )


def _value(rng):
    return str(rng.randint(1000, 99999)) if rng.random() < 0.6 else words.code(rng)


class Needles:
    """A text of about `tokens` tokens that hides `count` codes."""

    def __init__(self, rng, tokens, count, accept):
        """`accept(key)` says whether a code may be used (the split)."""
        self.pairs = {}
        while len(self.pairs) < count:
            owner, value = words.pseudo_word(rng, True), _value(rng)
            if owner not in self.pairs and accept(f"needle:{owner}:{value}"):
                self.pairs[owner] = value
        sentences = [
            filler(rng) for _ in range(max((tokens - CODE_TOKENS * count) // FILLER_TOKENS, 0))
        ]
        places = sorted(rng.randrange(len(sentences) + 1) for _ in self.pairs)
        self.depth = {}
        for shift, (place, (owner, value)) in enumerate(zip(places, self.pairs.items())):
            self.depth[owner] = place / max(len(sentences) - shift, 1)
            sentences.insert(place + shift, rng.choice(HIDE).format(n=owner, v=value))
        self.text = " ".join(sentences)

    def turns(self, rng):
        owners = list(self.pairs)
        rng.shuffle(owners)
        return [
            Turn(
                rng.choice(ASK).format(n=owner),
                self.pairs[owner],
                reasoning=f"The code of {owner}.",
                key=f"needle:{owner}:{self.pairs[owner]}",
            )
            for owner in owners
        ]
