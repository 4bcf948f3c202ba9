"""Tool calls: sixteen tool families with values drawn anew, parallel calls, results and answers to
them.
"""

from ..render import dumps
from . import words
from .turn import Turn

_S, _I, _B = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}


class Tool:
    """A declaration, requests (with {name} of arguments), a result and what to answer to it."""

    def __init__(self, name, description, properties, values, asks, result, final):
        self.name, self.values, self.asks, self.result, self.final = (
            name,
            values,
            asks,
            result,
            final,
        )
        self.schema = {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
            },
        }

    def example(self, rng):
        """(arguments, request, result values)"""
        values = self.values(rng)
        return values, rng.choice(self.asks).format(**values), self.result(rng)


def _amount(rng):
    return dict(amount=rng.randint(1, 999))


TOOLS = [
    Tool(
        "get_weather",
        "Weather of a city",
        {"city": _S},
        lambda r: dict(city=words.city(r)),
        [
            "What is the weather in {city}?",
            "Weather in {city}?",
            "How is the weather in {city} now?",
        ],
        lambda r: dict(degrees=r.randint(-9, 39), sky=r.choice(["sunny", "cloudy", "rainy"])),
        "It is {sky} and {degrees} degrees.",
    ),
    Tool(
        "set_timer",
        "Start a timer",
        {"minutes": _I, "label": _S},
        lambda r: dict(minutes=r.randint(1, 90), label=words.thing(r)),
        ["Set a timer of {minutes} minutes for {label}.", "Timer for {label}: {minutes} minutes."],
        lambda r: dict(id=words.code(r)),
        "The timer {id} is running.",
    ),
    Tool(
        "send_message",
        "Send a text to a person",
        {"to": _S, "text": _S},
        lambda r: dict(to=words.name(r), text=words.phrase(r)),
        ["Tell {to}: {text}", "Send {to} the message: {text}", "Message to {to}: {text}"],
        lambda r: dict(sent=True),
        "The message is sent.",
    ),
    Tool(
        "search_web",
        "Search the web",
        {"query": _S},
        lambda r: dict(query=words.phrase(r)),
        ["Search for {query}", "Look up {query} on the web", "Find {query} online"],
        lambda r: dict(title=words.phrase(r)),
        "I found: {title}.",
    ),
    Tool(
        "play_music",
        "Play songs",
        {"artist": _S, "volume": _I},
        lambda r: dict(artist=words.name(r), volume=r.randint(1, 100)),
        ["Play {artist} at volume {volume}.", "Put on {artist}, volume {volume}."],
        lambda r: dict(song=words.phrase(r, 1, 2)),
        "Now playing {song}.",
    ),
    Tool(
        "convert_currency",
        "Convert money",
        {"amount": _I, "from": _S, "to": _S},
        lambda r: dict(
            _amount(r),
            **dict(zip(("from", "to"), r.sample(["EUR", "USD", "JPY", "GBP", "CHF"], 2))),
        ),
        ["How much is {amount} {from} in {to}?", "Convert {amount} {from} to {to}."],
        lambda r: dict(result=r.randint(1, 9999)),
        "That is {result}.",
    ),
    Tool(
        "book_table",
        "Reserve a table",
        {"restaurant": _S, "people": _I, "time": _S},
        lambda r: dict(
            restaurant=words.pseudo_word(r, True), people=r.randint(1, 12), time=words.clock(r)
        ),
        [
            "Book a table for {people} at {restaurant} at {time}.",
            "Table at {restaurant}, {people} people, {time}.",
        ],
        lambda r: dict(number=r.randint(1, 99)),
        "You have table {number}.",
    ),
    Tool(
        "create_note",
        "Save a note",
        {"title": _S, "body": _S},
        lambda r: dict(title=words.thing(r), body=words.phrase(r)),
        ["Make a note {title}: {body}", "Note with title {title}: {body}"],
        lambda r: dict(id=words.code(r)),
        "Saved as {id}.",
    ),
    Tool(
        "add_event",
        "Add to the calendar",
        {"title": _S, "date": _S},
        lambda r: dict(title=words.thing(r), date=words.date(r)),
        ["Add {title} on {date} to my calendar.", "Put {title} in the calendar for {date}."],
        lambda r: dict(conflict=words.thing(r)),
        "Added, next to {conflict}.",
    ),
    Tool(
        "translate",
        "Translate a text",
        {"text": _S, "language": _S},
        lambda r: dict(
            text=words.phrase(r), language=r.choice(["French", "German", "Spanish", "Italian"])
        ),
        ["Translate to {language}: {text}", "How do you say {text} in {language}?"],
        lambda r: dict(text=words.phrase(r)),
        "It is: {text}",
    ),
    Tool(
        "get_stock",
        "Price of a share",
        {"symbol": _S},
        lambda r: dict(
            symbol="".join(r.choice("ABCDEFGHKLMNPRSTVX") for _ in range(r.randint(2, 4)))
        ),
        ["What does {symbol} cost?", "Price of {symbol}?", "Stock price of {symbol} please"],
        lambda r: dict(price=r.randint(1, 999)),
        "It costs {price}.",
    ),
    Tool(
        "set_light",
        "Control a lamp",
        {"room": _S, "on": _B, "brightness": _I},
        lambda r: dict(
            room=r.choice(["kitchen", "hall", "bedroom", "office", words.thing(r)]),
            on=True,
            brightness=r.randint(1, 100),
        ),
        [
            "Light in the {room} on at {brightness} percent.",
            "Turn on the {room} lamp, {brightness} percent.",
        ],
        lambda r: dict(ok=True),
        "The light is on.",
    ),
    Tool(
        "calculate",
        "Evaluate arithmetic",
        {"expression": _S},
        lambda r: dict(expression=f"{r.randint(2, 999)} {r.choice('+-*/')} {r.randint(2, 999)}"),
        ["Calculate {expression}", "Use the calculator: {expression}"],
        lambda r: dict(value=r.randint(1, 99999)),
        "The result is {value}.",
    ),
    Tool(
        "read_file",
        "Content of a file",
        {"path": _S},
        lambda r: dict(
            path=f"{words.thing(r)}/{words.thing(r)}.{r.choice(['txt', 'md', 'json', 'py'])}"
        ),
        ["Show me the file {path}", "What is in {path}?", "Open {path}"],
        lambda r: dict(content=words.phrase(r)),
        "It says: {content}",
    ),
    Tool(
        "find_contact",
        "Look up a person",
        {"name": _S},
        lambda r: dict(name=words.name(r)),
        ["What is the phone number of {name}?", "Find the contact {name}"],
        lambda r: dict(phone=str(r.randint(10000, 999999))),
        "The number is {phone}.",
    ),
    Tool(
        "track_parcel",
        "Where a parcel is",
        {"number": _S},
        lambda r: dict(number=words.code(r)),
        ["Where is parcel {number}?", "Track {number}", "Status of my parcel {number}?"],
        lambda r: dict(place=words.city(r)),
        "It is in {place}.",
    ),
]


class ToolTask:
    """Items over a fixed choice of tools."""

    def __init__(self, rng, count=None):
        self.tools = rng.sample(TOOLS, count or rng.choice((1, 1, 2, 2, 3)))
        self.schemas = [tool.schema for tool in self.tools]

    def make(self, rng):
        first = rng.choice(self.tools)
        chosen = [first]
        if rng.random() < 0.2:
            chosen.append(rng.choice(self.tools))
        examples = [tool.example(rng) for tool in chosen]
        request = " And ".join(ask for _, ask, _ in examples)
        calls = [
            dict(name=tool.name, arguments=values) for tool, (values, _, _) in zip(chosen, examples)
        ]
        final = " ".join(
            tool.final.format(**result) for tool, (_, _, result) in zip(chosen, examples)
        )
        return Turn(
            request,
            calls=calls,
            results=[dumps(result) for _, _, result in examples],
            final=final,
            reasoning=f"Call {' and '.join(tool.name for tool in chosen)}.",
            key=f"tool:{dumps([[c['name'], c['arguments']] for c in calls])}",
        )
