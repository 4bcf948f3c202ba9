"""Questions about Kuruma: curated facts (`facts/*.toml`), facts from the help texts, and phrasings.

A fact is `subject`, `kind`, `answer`, and optionally `ask` and `held`, phrasings of its own for
training and for evaluation. Kinds bring general phrasings; `HELD` ones are never trained on.
"""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from . import help_texts
from .turn import Turn

FACTS = Path(__file__).parents[1] / "facts"
TRAIN = {
    "command": [
        "What does {s} do?",
        "What is {s} for?",
        "Explain {s}.",
        "Tell me about {s}.",
        "What is the purpose of {s}?",
        "Describe {s}.",
        "When do I use {s}?",
        "What is {s}?",
        "Can you explain {s}?",
        "What happens when I run {s}?",
        "I do not know {s}. What is it?",
        "Help me with {s}.",
        "Why would I run {s}?",
        "What is {s} good for?",
        "I want to know what {s} does.",
        "I would like to understand {s}.",
        "Please tell me what {s} is for.",
        "Please explain what {s} does.",
        "Say what {s} does.",
        "Give an explanation of {s}.",
        "A short explanation of {s}, please.",
        "What can {s} do?",
        "What use is {s}?",
        "Which job does {s} do?",
        "I wonder what {s} is for.",
        "What should I know about {s}?",
    ],
    "flag": [
        "What does {s} do?",
        "What is {s} for?",
        "Explain {s}.",
        "Tell me about {s}.",
        "What is the meaning of {s}?",
        "Describe {s}.",
        "What is {s}?",
        "Can you explain {s}?",
        "What does {s} mean?",
        "What happens with {s}?",
        "Help me with {s}.",
        "Why would I give {s}?",
        "I want to know what {s} does.",
        "I would like to understand {s}.",
        "Please tell me what {s} is for.",
        "Please explain what {s} does.",
        "Say what {s} does.",
        "Give an explanation of {s}.",
        "A short explanation of {s}, please.",
        "Which effect has {s}?",
        "What changes with {s}?",
        "I wonder what {s} is for.",
        "What should I know about {s}?",
    ],
    "default": [
        "What is the default of {s}?",
        "Which value has {s} by default?",
        "Default of {s}?",
        "What is the default value of {s}?",
        "What does {s} default to?",
        "Tell me the default of {s}.",
        "What is {s} if I do not give it?",
        "Which value is used for {s} by default?",
        "What value does {s} have if it is not given?",
        "If I give no {s}, what is used?",
        "I want to know the default of {s}.",
        "Which default has {s}?",
        "Please tell me the default value of {s}.",
        "What is used when {s} is absent?",
    ],
    "how": [
        "How do I {s}?",
        "How can I {s}?",
        "How to {s}?",
        "I want to {s}. How?",
        "What is the command to {s}?",
        "How does one {s}?",
        "Which command do I need to {s}?",
        "Tell me how to {s}.",
        "What must I do to {s}?",
        "Can I {s}?",
        "Explain how to {s}.",
        "I would like to {s}.",
        "Please tell me how I {s}.",
        "Is it possible to {s}?",
        "What do I do to {s}?",
        "What do I run to {s}?",
        "What should I type if I want to {s}?",
        "Show me the way to {s}.",
        "Please help me to {s}.",
        "What is the way to {s}?",
        "Say how I can {s}.",
        "I need to {s}.",
    ],
    "concept": [
        "What is {s}?",
        "Explain {s}.",
        "What does {s} mean?",
        "Tell me about {s}.",
        "Describe {s}.",
        "Can you explain {s}?",
        "What do you know about {s}?",
        "Define {s}.",
        "What about {s}?",
        "I do not understand {s}.",
        "Help me understand {s}.",
        "What does Kuruma mean by {s}?",
        "Can you tell me about {s}?",
        "Please tell me what {s} is.",
        "I want to know what {s} is.",
        "I would like to understand {s}.",
        "Give an explanation of {s}.",
        "A short explanation of {s}, please.",
        "Say what {s} means.",
        "What is meant by {s}?",
        "I wonder what {s} is.",
        "What should I know about {s}?",
    ],
    "plain": [],
}
HELD = {
    "command": [
        "What can I do with {s}?",
        "Please say what {s} does.",
        "Give me a short explanation of {s}.",
        "I would like to know what {s} is for.",
        "What job does {s} have?",
    ],
    "flag": [
        "What effect does {s} have?",
        "Please say what {s} does.",
        "Give me a short explanation of {s}.",
        "I would like to know what {s} is for.",
        "What job does {s} have?",
    ],
    "default": [
        "What value is used for {s} if I give none?",
        "Please say the default of {s}.",
        "I would like to know the default of {s}.",
    ],
    "how": [
        "Show me how to {s}.",
        "What do I type to {s}?",
        "Is there a way to {s}?",
        "Please say how to {s}.",
    ],
    "concept": [
        "Can you tell me what {s} is?",
        "Give me a short explanation of {s}.",
        "Please say what {s} means.",
        "I would like to know about {s}.",
    ],
    "plain": [],
}
PREFIXES = [
    "Hi, ",
    "Hello. ",
    "Please help: ",
    "Quick question: ",
    "Sorry, ",
    "Kuruma: ",
    "One question: ",
    "OK. ",
    "Please: ",
    "Now tell me: ",
    "I have a question. ",
]


@dataclass
class Fact:
    subject: list
    kind: str
    answer: str
    ask: list = field(default_factory=list)
    held: list = field(default_factory=list)
    source: str = ""

    def phrasings(self, held):
        """All questions on one side of the split."""
        general = (HELD if held else TRAIN)[self.kind]
        return [t.format(s=s) for s in self.subject for t in general] + (
            self.held if held else self.ask
        )


def _of_help(texts):
    """Facts about every command and flag that the help texts show."""
    for command, text in help_texts.descriptions(texts).items():
        yield Fact(
            [command, f"kuruma {command}", f"the {command} command"],
            "command",
            f"kuruma {command}: {text.rstrip('.')}.",
            source="help",
        )
    listed = help_texts.flags(texts)
    for flag in listed:
        same = [f for f in listed if f.name == flag.name]
        alike = all((f.description, f.default) == (flag.description, flag.default) for f in same)
        owners = [f.command for f in same]
        if alike and flag is not same[0]:
            continue
        subjects = [flag.name, f"the flag {flag.name}"] if alike else []
        subjects += [
            f"{flag.name} of {owner}"
            for owner in owners
            if owner and (not alike or len(owners) < 3) and (alike or owner == flag.command)
        ]
        yield Fact(subjects, "flag", f"{flag.name}: {flag.description.rstrip('.')}.", source="help")
        if flag.default:
            yield Fact(
                subjects, "default", f"The default of {flag.name} is {flag.default}.", source="help"
            )


def load_facts():
    """Facts of the files, and those of the captured help texts that no file says better."""
    texts, facts = help_texts.load(), []
    for path in sorted(FACTS.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["fact"]:
            subject = entry.pop("subject", [])
            facts.append(
                Fact([subject] if isinstance(subject, str) else subject, source=path.name, **entry)
            )
    curated = {s for fact in facts for s in fact.subject if fact.kind in ("command", "flag")}
    taken = {normal(q) for fact in facts for q in fact.phrasings(False) + fact.phrasings(True)}
    for fact in _of_help(texts):
        if fact.kind != "default" and curated & set(fact.subject):
            continue  # said better by hand
        # A command may be called like a concept; the hand-written answer stays the only one.
        templates = TRAIN[fact.kind] + HELD[fact.kind]
        fact.subject = [
            s for s in fact.subject if not any(normal(t.format(s=s)) in taken for t in templates)
        ]
        facts += [fact] if fact.subject else []
    return facts


def check_facts(facts, root):
    """Complaints: quoted commands, flags and targets that no document or help text knows, doubled
    questions.
    """
    texts = help_texts.load()
    documents = [
        *sorted((root / "docs").glob("*.md")),
        *(
            root / n
            for n in ("README.md", "DESIGN.md", "CONTRIBUTING.md", "Makefile", "tools/setup.sh")
        ),
    ]
    known = "\n".join(
        [*texts.values(), *(d.read_text(encoding="utf-8") for d in documents if d.exists())]
    )
    complaints, owner = [], {}
    for fact in facts:
        text = " ".join([*fact.subject, fact.answer, *fact.ask, *fact.held])
        for quote in re.findall(r"--[a-z][a-z-]+|\bmake [a-z]+\b(?! sure)", text):
            if not re.search(
                re.escape(quote).replace(r"make\ ", r"(?:make )?") + r"(?![a-z-])", known
            ):
                complaints.append(f"{fact.source}: {quote!r} is not documented")
        for command in re.findall(r"\bkuruma ([a-z]+)\b", text):
            if command not in texts:
                complaints.append(f"{fact.source}: no command {command!r}")
        if (
            fact.kind != "plain"
            and not fact.subject
            or fact.kind == "plain"
            and not (fact.ask and fact.held)
        ):
            complaints.append(f"{fact.source}: {fact.answer!r} needs a subject, or ask and held")
        for held in (False, True):
            for question in fact.phrasings(held):
                if owner.setdefault(normal(question), fact.answer) != fact.answer:
                    complaints.append(f"{fact.source}: {question!r} has two answers")
    trained = {normal(q) for f in facts for q in f.phrasings(False)}
    complaints += [
        f"{f.source}: {q!r} is held out and trained"
        for f in facts
        for q in f.phrasings(True)
        if normal(q) in trained
    ]
    return complaints


def normal(question):
    """What noise leaves of a question: case, prefixes and final punctuation do not make it new."""
    for prefix in PREFIXES:
        question = question.removeprefix(prefix)
    return re.sub(r"\s+", " ", question.lower().rstrip(" .?!"))


class Faq:
    def __init__(self, facts=None):
        self.facts = load_facts() if facts is None else facts
        self._asks = [f.phrasings(False) for f in self.facts]

    def make(self, rng):
        number = rng.randrange(len(self.facts))
        fact, own = self.facts[number], self.facts[number].ask
        ask = rng.choice(own) if own and rng.random() < 0.3 else rng.choice(self._asks[number])
        noise = rng.random()
        if noise < 0.12:
            ask = ask.lower()
        elif noise < 0.24:
            ask = ask.rstrip(".?")
        elif noise < 0.36:
            ask = rng.choice(PREFIXES) + ask
        return Turn(ask, fact.answer, reasoning=_thought(fact), key=f"faq:{ask}")

    def held_turns(self):
        return [
            Turn(ask, fact.answer, reasoning=_thought(fact), key=f"faq:{ask}")
            for fact in self.facts
            for ask in fact.phrasings(True)
        ]


def _thought(fact):
    subject = fact.subject[0] if fact.subject else fact.ask[0].rstrip("?.")
    return f"The question is about: {subject}."
