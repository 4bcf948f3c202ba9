"""One exchange of a conversation, and the rule that keeps held-out values away from training."""

import hashlib
from dataclasses import dataclass, field

HELD_OUT_SHARE = 16  # one of so many values is reserved for evaluation


@dataclass
class Turn:
    """A user text and what the model answers; `key` names the values that make the item unique."""

    user: str
    answer: str = ""
    reasoning: str = ""
    calls: list = field(default_factory=list)
    results: list = field(default_factory=list)  # texts of tool results, one per call
    final: str = ""  # answer after the results
    key: str = ""


def is_held_out(key):
    """Decides by the values alone, so training and evaluation cannot meet whatever their seeds."""
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:8], "little") % HELD_OUT_SHARE == 0


def draw(make, rng, held):
    """The first item of `make(rng)` on the wanted side of the split."""
    for _ in range(10000):
        turn = make(rng)
        if is_held_out(turn.key) == held:
            return turn
    raise RuntimeError(
        f"{make.__name__} yields no item on the {'held-out' if held else 'training'} side"
    )
