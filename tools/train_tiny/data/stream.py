"""Training rows from a seed: row n of step s is a function of (seed, s, n, progress) alone.

A row is one conversation in the engine's own rendering, cut or padded to its length. The loss
counts on what the model is to produce.
"""

import random
from dataclasses import dataclass

import torch

from ..render import TOOLS_INTRO, TOOLS_OUTRO, dumps, encode, render_training
from ..tokenizer import PAD
from . import needle
from .extract import Extraction
from .faq import Faq
from .mixture import KINDS, PHASES, phase_at, pick
from .talk import Talk
from .tasks import Tasks
from .tools import ToolTask
from .turn import draw, is_held_out

SYSTEM_TEXTS = [
    "You are a helpful assistant.",
    "You are Kuruma.",
    "Be brief.",
    "Answer briefly.",
    "You help people to use Kuruma.",
    "You are a careful assistant.",
]
FULL_TOOLS_SHARE = 0.6  # of the tool rows long enough for the whole instructions
FULL_TOOLS_LENGTH = 512


@dataclass
class Row:
    conversation: dict
    abridged: bool
    turns: list  # every Turn in it, for the proof that none is held out


@dataclass
class Batch:
    tokens: torch.Tensor  # [B, T]
    wanted: torch.Tensor  # [B, T] bool: this token is to be predicted
    turns: list


def messages_of(turn, thinks=False):
    """User message, answer and, for tool calls, results and the answer to them."""
    reasoning = dict(reasoning=turn.reasoning) if thinks else {}
    out = [dict(role="user", content=turn.user)]
    if not turn.calls:
        return out + [dict(role="assistant", content=turn.answer, **reasoning)]
    out.append(dict(role="assistant", content="", tool_calls=turn.calls, **reasoning))
    out += [dict(role="tool", content=result) for result in turn.results]
    done = dict(reasoning="Done.") if thinks else {}
    return out + [dict(role="assistant", content=turn.final, **done)]


class Stream:
    def __init__(self, tokenizer, seed, tokens_per_step=2048, facts=None):
        self.tokenizer, self.seed, self.tokens_per_step = tokenizer, seed, tokens_per_step
        tasks = Tasks(tokenizer.texts() if tokenizer else ())
        self.makers = {
            name: getattr(tasks, name)
            for name in ("copy", "sum2", "sum3", "sort", "reverse", "count", "dates")
        }
        self.makers.update(faq=Faq(facts).make, talk=Talk().make)
        self.verbosity = 1.0  # tokens of filler text relative to what needle.py reckons with
        if tokenizer:
            sample = " ".join(needle.filler(random.Random(i)) for i in range(100))
            self.verbosity = len(tokenizer.encode(sample)) / (100 * needle.FILLER_TOKENS)

    # -- turns -------------------------------------------------------------

    def turn(self, rng, phase):
        family = pick(rng, phase.families)
        make = self.makers[family]
        # Facts and talk are split by phrasing, inside their makers.
        return make(rng) if family in ("faq", "talk") else draw(make, rng, held=False)

    def _cost(self, turn, thinks=False):
        """Tokens of a turn, roles and end included."""
        text = turn.user + "\n" + turn.answer + turn.final + (turn.reasoning if thinks else "")
        if turn.calls:
            text += "".join(turn.results) * 2 + turn.reasoning * thinks
            return len(self.tokenizer.encode(text)) + 40 * len(turn.calls) + 8
        return len(self.tokenizer.encode(text)) + 4

    def _fill(self, make, budget, thinks=False, most=60):
        """Turns of `make` until the budget is used; the last may reach beyond it."""
        turns = []
        while budget > 8 and len(turns) < most:
            turns.append(make())
            budget -= self._cost(turns[-1], thinks)
        return turns

    # -- kinds of rows -----------------------------------------------------

    def _chat(self, rng, phase, length):
        messages = (
            [dict(role="system", content=rng.choice(SYSTEM_TEXTS))] if rng.random() < 0.2 else []
        )
        turns = self._fill(lambda: self.turn(rng, phase), length)
        for turn in turns:
            messages += messages_of(turn)
        return Row(dict(messages=messages), False, turns)

    def _think(self, rng, phase, length):
        """Without tools only the last answer shows its thought, so that one must fit."""
        last = self.turn(rng, phase)
        budget = length - 40 - self._cost(last, True)
        turns = []
        while budget > 0 and len(turns) < 60:
            turn = self.turn(rng, phase)
            budget -= self._cost(turn)
            if budget > 0:
                turns.append(turn)
        messages = (
            [dict(role="system", content=rng.choice(SYSTEM_TEXTS))] if rng.random() < 0.2 else []
        )
        for turn in turns:
            messages += messages_of(turn)
        messages += messages_of(last, True)
        effort = rng.choice((75, 75, 75, 50, 100))
        return Row(dict(messages=messages, thinking=True, effort=effort), False, [*turns, last])

    def _json(self, rng, phase, length):
        task = Extraction(rng)
        messages, in_text = [], rng.random() < 0.4
        turns = self._fill(lambda: draw(task.make, rng, held=False), length - 70)
        for i, turn in enumerate(turns):
            pair = messages_of(turn)
            if in_text and i == 0:
                pair[0]["content"] = f"JSON schema: {dumps(task.schema)}\n{turn.user}"
            messages += pair
        return Row(dict(messages=messages, schema=None if in_text else task.schema), False, turns)

    def _tool(self, rng, phase, length):
        full = length >= FULL_TOOLS_LENGTH and rng.random() < FULL_TOOLS_SHARE
        task, thinks = (
            ToolTask(rng, None if length > 256 else rng.choice((1, 1, 2))),
            rng.random() < 0.5,
        )

        def make():
            # Not every question is one for a tool.
            return (
                self.turn(rng, phase) if rng.random() < 0.12 else draw(task.make, rng, held=False)
            )

        turns = self._fill(make, length - 60 * len(task.tools) - (250 if full else 20), thinks)
        messages = []
        for turn in turns:
            messages += messages_of(turn, thinks)
        return Row(dict(messages=messages, tools=task.schemas, thinking=thinks), not full, turns)

    def _needle(self, rng, phase, length):
        count = max(2, min(16, length // 90))
        room = (length - 8) / self.verbosity - needle.TURN_TOKENS * count
        hidden = needle.Needles(rng, int(room), count, lambda key: not is_held_out(key))
        turns = hidden.turns(rng)
        messages = []
        for i, turn in enumerate(turns):
            pair = messages_of(turn)
            if i == 0:
                pair[0]["content"] = hidden.text + "\n" + turn.user
            messages += pair
        return Row(dict(messages=messages), False, turns)

    # -- batches -----------------------------------------------------------

    def row(self, rng, kind, phase, length):
        return getattr(self, f"_{kind}")(rng, phase, length)

    def batch(self, step, progress, lengths=None):
        """`lengths` replaces the phase's weights of row lengths."""
        rng = random.Random(f"{self.seed}:{step}")
        phase = phase_at(progress)
        length = pick(rng, lengths or phase.lengths)
        rows = [
            self.row(rng, pick(rng, phase.kinds[length]), phase, length)
            for _ in range(max(self.tokens_per_step // length, 1))
        ]
        return self.encode(rows, length)

    def encode(self, rows, length):
        tokens = torch.full((len(rows), length), self.tokenizer.special(PAD))
        wanted = torch.zeros(tokens.shape, dtype=torch.bool)
        for i, row in enumerate(rows):
            ids, answer = encode(render_training(row.conversation, row.abridged), self.tokenizer)
            ids, answer = ids[:length], answer[:length]
            tokens[i, : len(ids)] = torch.tensor(ids)
            wanted[i, : len(ids)] = torch.tensor(answer)
        return Batch(tokens, wanted, [turn for row in rows for turn in row.turns])


def sample_texts(seed, rows=6000):
    """Plain text of rows of all kinds, without a tokenizer: what the vocabulary is learned on."""
    stream, rng = _Untokenized(seed), random.Random(f"{seed}:vocabulary")
    texts = [TOOLS_INTRO, TOOLS_OUTRO] * (rows // 4)  # in every request with tools: keep it short
    weights = dict(zip(KINDS, (50, 10, 14, 20, 6)))
    for number in range(rows):
        kind = pick(rng, weights)
        row = stream.row(rng, kind, PHASES[number % len(PHASES)], 256)
        texts += [
            s.text for s in render_training(row.conversation, number % 3 > 0) if not s.special
        ]
    return texts


class _Untokenized(Stream):
    """Counts characters instead of tokens: good enough to fill rows before a tokenizer exists."""

    def __init__(self, seed):
        super().__init__(None, seed)

    def _cost(self, turn, thinks=False):
        return len(turn.user + turn.answer + turn.final + turn.reasoning) // 4 + 8
