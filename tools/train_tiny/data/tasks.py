"""Exactly checkable tasks: copy, reverse, sort, count, dates, sums. Each maker returns a Turn."""

import datetime

from . import words
from .turn import Turn

COPY = [
    "Repeat: {}",
    "Repeat this: {}",
    "Say exactly: {}",
    "Copy this text: {}",
    "Echo: {}",
    "Write this back: {}",
    "Please repeat after me: {}",
    "Copy: {}",
]
REVERSE = [
    "Reverse the order: {}",
    "Reverse these words: {}",
    "Say these words backwards: {}",
    "Reverse: {}",
]
SORT_NUMBERS = [
    "Sort: {}",
    "Sort these numbers: {}",
    "Put in ascending order: {}",
    "Order from smallest to largest: {}",
]
SORT_WORDS = ["Sort alphabetically: {}", "Put these words in alphabetical order: {}"]
SUM = [
    "What is {a} + {b}?",
    "{a} + {b} =",
    "{a}+{b}",
    "Add {a} and {b}.",
    "Compute {a} + {b}.",
    "How much is {a} plus {b}?",
    "{a} + {b}?",
]
DIFFERENCE = [
    "What is {a} - {b}?",
    "{a} - {b} =",
    "{a}-{b}",
    "Subtract {b} from {a}.",
    "Compute {a} - {b}.",
    "How much is {a} minus {b}?",
    "{a} - {b}?",
]


class Tasks:
    """Makers of all task families; `pool` are token texts for copying (may be empty)."""

    def __init__(self, pool=()):
        self.pool = list(pool)

    def copy(self, rng):
        kind = rng.random()
        text = words.strange(rng, self.pool) if kind < 0.6 else words.phrase(rng, 1, 6)
        text = text.strip()
        return Turn(
            rng.choice(COPY).format(text),
            text,
            reasoning=f"The text is: {text}",
            key=f"copy:{text}",
        )

    def reverse(self, rng):
        items = [
            words.thing(rng) if rng.random() < 0.7 else str(rng.randint(0, 99))
            for _ in range(rng.randint(2, 6))
        ]
        answer = " ".join(reversed(items))
        return Turn(
            rng.choice(REVERSE).format(" ".join(items)),
            answer,
            reasoning=f"{len(items)} items, the last is {items[-1]}.",
            key=f"reverse:{items}",
        )

    def sort(self, rng):
        count = rng.randint(2, 6)
        if rng.random() < 0.7:
            items, asks = rng.sample(range(100), count), SORT_NUMBERS
            joined = rng.choice((" ", ", "))
            return Turn(
                rng.choice(asks).format(joined.join(map(str, items))),
                joined.join(map(str, sorted(items))),
                reasoning=f"The smallest is {min(items)}, the largest {max(items)}.",
                key=f"sort:{items}",
            )
        items = sorted({words.thing(rng) for _ in range(count)})
        answer = " ".join(items)
        rng.shuffle(items)
        return Turn(
            rng.choice(SORT_WORDS).format(" ".join(items)),
            answer,
            reasoning=f"The first is {answer.split()[0]}.",
            key=f"sort:{items}",
        )

    def count(self, rng):
        if rng.random() < 0.5:
            items = [words.thing(rng) for _ in range(rng.randint(1, 9))]
            ask = rng.choice(
                ["How many words: {}", "Count the words: {}", "How many words are in: {}"]
            )
            numbered = ", ".join(f"{i} {word}" for i, word in enumerate(items, 1))
            return Turn(
                ask.format(" ".join(items)),
                str(len(items)),
                reasoning=numbered,
                key=f"count:{items}",
            )
        kinds = [words.thing(rng) for _ in range(3)]
        items = [rng.choice(kinds) for _ in range(rng.randint(3, 9))]
        wanted = rng.choice(items)
        ask = rng.choice(
            [
                "How often does {w} occur in: {t}",
                "How many times is {w} in: {t}",
                "Count {w} in: {t}",
            ]
        )
        marks = " ".join("1" if item == wanted else "0" for item in items)
        return Turn(
            ask.format(w=wanted, t=" ".join(items)),
            str(items.count(wanted)),
            reasoning=marks,
            key=f"count:{wanted}:{items}",
        )

    def dates(self, rng):
        kind = rng.random()
        if kind < 0.3:
            day, step = rng.randrange(7), rng.randint(1, 6)
            answer, when = (
                words.WEEKDAYS[(day + step) % 7],
                f"{step} day{'s' if step > 1 else ''} after",
            )
            return Turn(
                f"Which weekday is {when} {words.WEEKDAYS[day]}?",
                answer,
                reasoning=", ".join(words.WEEKDAYS[(day + i) % 7] for i in range(1, step + 1)),
                key=f"weekday:{day}:{step}",
            )
        start = datetime.date(rng.randint(2020, 2035), rng.randint(1, 12), rng.randint(1, 28))
        if kind < 0.6:
            ask = rng.choice(
                ["Write {} in ISO format.", "ISO format of {}?", "Convert {} to YYYY-MM-DD."]
            )
            text = f"{words.MONTHS[start.month - 1]} {start.day}, {start.year}"
            return Turn(
                ask.format(text),
                start.isoformat(),
                reasoning=f"{words.MONTHS[start.month - 1]} is month {start.month}.",
                key=f"iso:{start}",
            )
        step = rng.randint(1, 9)
        answer = start + datetime.timedelta(days=step)
        return Turn(
            f"What date is {step} day{'s' if step > 1 else ''} after {start}?",
            answer.isoformat(),
            reasoning=f"{start.day} + {step} = {start.day + step}.",
            key=f"date:{start}:{step}",
        )

    def _sum(self, rng, digits):
        top = 10**digits - 1
        a, b = rng.randint(1, top), rng.randint(1, top)
        if rng.random() < 0.5:
            return Turn(
                rng.choice(SUM).format(a=a, b=b),
                str(a + b),
                reasoning=add_by_digits(a, b),
                key=f"sum:{a}+{b}",
            )
        a, b = max(a, b), min(a, b)
        return Turn(
            rng.choice(DIFFERENCE).format(a=a, b=b),
            str(a - b),
            reasoning=subtract_by_digits(a, b),
            key=f"sum:{a}-{b}",
        )

    def sum2(self, rng):
        return self._sum(rng, 2)

    def sum3(self, rng):
        return self._sum(rng, 3)


def add_by_digits(a, b):
    """Column by column from the right, as on paper."""
    steps, carry = [], 0
    for place in range(max(len(str(a)), len(str(b)))):
        x, y = a // 10**place % 10, b // 10**place % 10
        total = x + y + carry
        steps.append(f"{x}+{y}{'+1' if carry else ''}={total}")
        carry = total // 10
    return f"{' '.join(steps)} so {a + b}"


def subtract_by_digits(a, b):
    steps, borrow = [], 0
    for place in range(len(str(a))):
        x, y = a // 10**place % 10, b // 10**place % 10
        top = x + (10 if x - borrow < y else 0)
        steps.append(f"{top}-{y}{'-1' if borrow else ''}={top - y - borrow}")
        borrow = int(x - borrow < y)
    return f"{' '.join(steps)} so {a - b}"
