"""Proof that no held-out item is in the training data.

Values: training draws only values on its side of the split, held-out items only from the other, and
the side is a hash of the values. Phrasings of facts and talk: all that training can use are listed
and compared. Then a stretch of the real stream is searched for held-out questions as a check on
this reasoning.
"""

from .faq import Faq, normal
from .talk import Talk
from .turn import is_held_out

_BY_PHRASING = ("faq:", "talk:")


def complaints(items, stream, steps):
    """Reasons why the split does not hold; `steps` of the stream are searched."""
    out, turns = [], [item["turn"] for item in items]
    for turn in turns:
        if not turn.key.startswith(_BY_PHRASING) and not is_held_out(turn.key):
            out.append(f"evaluation uses a training value: {turn.key[:80]}")
    trained = {normal(q) for fact in Faq().facts for q in fact.phrasings(False)}
    trained |= {normal(ask) for ask, _ in Talk().train}
    asked = {normal(turn.user) for turn in turns}
    out += [f"evaluation uses a training phrasing: {q[:80]}" for q in sorted(asked & trained)]
    for step in range(steps):
        for turn in stream.batch(step, step / steps).turns:
            if not turn.key.startswith(_BY_PHRASING) and is_held_out(turn.key):
                out.append(f"training uses a held-out value: {turn.key[:80]}")
            if normal(turn.user) in asked:
                out.append(f"training asks a held-out question: {turn.user[:80]}")
    return out
