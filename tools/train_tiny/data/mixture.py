"""What is trained when: shares of turn families, kinds of rows and row lengths by progress of the
run.

First much copying (tool values, JSON and needles all rest on it), then sums, then facts and copying
again, while the learning rate decays. No family is ever left out: it would be forgotten within minutes.
"""

from dataclasses import dataclass

FAMILIES = ("faq", "copy", "sum2", "sum3", "sort", "reverse", "count", "dates", "talk")
KINDS = ("chat", "think", "json", "tool", "needle")


@dataclass(frozen=True)
class Phase:
    start: float  # progress of the run, 0..1
    families: dict  # weights of turns in chat and thinking rows
    kinds: dict  # row length -> weights of kinds of rows
    lengths: dict  # row length -> weight of steps with such rows


_KINDS = {
    128: (60, 20, 20, 0, 0),
    256: (12, 12, 20, 44, 12),
    512: (5, 5, 5, 65, 20),
    1024: (0, 0, 0, 30, 70),
    2048: (0, 0, 0, 0, 1),
    4096: (0, 0, 0, 0, 1),
}


def _phase(start, families, lengths):
    kinds = {length: dict(zip(KINDS, weights)) for length, weights in _KINDS.items()}
    return Phase(start, dict(zip(FAMILIES, families)), kinds, lengths)


#                        faq copy sum2 sum3 sort reverse count dates talk
PHASES = (
    _phase(0.00, (32, 32, 5, 3, 6, 6, 5, 6, 5), {128: 68, 256: 24, 512: 8}),
    _phase(
        0.35,
        (22, 10, 24, 14, 7, 6, 6, 6, 5),
        {128: 64, 256: 20, 512: 10, 1024: 4, 2048: 1, 4096: 1},
    ),
    _phase(
        0.52,
        (32, 14, 17, 10, 7, 6, 5, 6, 5),
        {128: 64, 256: 20, 512: 10, 1024: 4, 2048: 1, 4096: 1},
    ),
    _phase(
        0.62,
        (30, 26, 9, 5, 7, 6, 5, 5, 7),
        {128: 56, 256: 28, 512: 9, 1024: 3, 2048: 2, 4096: 2},
    ),
)


def phase_at(progress):
    return [phase for phase in PHASES if phase.start <= progress][-1]


def pick(rng, weights):
    return rng.choices(list(weights), list(weights.values()))[0]
