"""JSON extraction: a sentence and a schema in, one JSON object out."""

from ..render import dumps
from . import words
from .turn import Turn


def _person(rng):
    v = dict(name=words.name(rng), age=rng.randint(18, 90), city=words.city(rng))
    return v, [
        f"{v['name']} is {v['age']} years old and lives in {v['city']}.",
        f"In {v['city']} lives {v['name']}, aged {v['age']}.",
        f"{v['name']}, {v['age']}, comes from {v['city']}.",
    ]


def _order(rng):
    v = dict(
        product=rng.choice(words.PRODUCTS), quantity=rng.randint(1, 99), customer=words.name(rng)
    )
    return v, [
        f"{v['customer']} ordered {v['quantity']} of the {v['product']}.",
        f"Order from {v['customer']}: {v['quantity']} x {v['product']}.",
    ]


def _meeting(rng):
    v = dict(title=words.phrase(rng, 1, 2), date=words.date(rng), time=words.clock(rng))
    return v, [
        f"The meeting {v['title']} is on {v['date']} at {v['time']}.",
        f"On {v['date']}, {v['time']}: {v['title']}.",
    ]


def _flight(rng):
    v = dict(flight=words.code(rng), start=words.city(rng), end=words.city(rng))
    return v, [
        f"Flight {v['flight']} goes from {v['start']} to {v['end']}.",
        f"From {v['start']} to {v['end']} with {v['flight']}.",
    ]


def _stock(rng):
    v = dict(item=words.thing(rng), color=rng.choice(words.COLORS), available=rng.random() < 0.5)
    state = "in stock" if v["available"] else "sold out"
    return v, [
        f"The {v['color']} {v['item']} is {state}.",
        f"{state.capitalize()}: {v['item']}, {v['color']}.",
    ]


def _contact(rng):
    v = dict(
        name=words.name(rng),
        company=rng.choice(words.COMPANIES),
        phone=str(rng.randint(10000, 999999)),
    )
    return v, [
        f"Call {v['name']} of {v['company']} at {v['phone']}.",
        f"{v['name']} ({v['company']}), phone {v['phone']}.",
    ]


def _payment(rng):
    v = dict(
        amount=rng.randint(1, 999),
        currency=rng.choice(["EUR", "USD", "JPY", "GBP", "CNY"]),
        payer=words.name(rng),
    )
    return v, [
        f"{v['payer']} paid {v['amount']} {v['currency']}.",
        f"{v['amount']} {v['currency']} came from {v['payer']}.",
    ]


DOMAINS = dict(
    person=_person,
    order=_order,
    meeting=_meeting,
    flight=_flight,
    stock=_stock,
    contact=_contact,
    payment=_payment,
)
ASK = [
    "Extract the data: {}",
    "{}",
    "Turn this into JSON: {}",
    "Fill the schema from this text: {}",
]


def schema_of(values):
    kinds = {str: "string", int: "integer", bool: "boolean"}
    return {
        "type": "object",
        "properties": {k: {"type": kinds[type(v)]} for k, v in values.items()},
        "required": list(values),
    }


class Extraction:
    """Items of one schema, drawn once, so that a conversation repeats the schema only once."""

    def __init__(self, rng):
        self.domain = rng.choice(sorted(DOMAINS))
        values, _ = DOMAINS[self.domain](rng)
        fields = rng.sample(sorted(values), rng.randint(2, len(values)))
        self.fields, self.schema = fields, schema_of({f: values[f] for f in fields})

    def make(self, rng):
        values, texts = DOMAINS[self.domain](rng)
        wanted = {f: values[f] for f in self.fields}
        text = rng.choice(texts)
        return Turn(
            rng.choice(ASK).format(text),
            dumps(wanted),
            reasoning=f"Fields: {', '.join(self.fields)}.",
            key=f"json:{self.domain}:{sorted(values.items())}",
        )
