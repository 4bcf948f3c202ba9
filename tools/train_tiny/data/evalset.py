"""Held-out items: values of the reserved side of the split, phrasings that training never uses.

An item is a line of `kuruma eval` (id, family, messages, tools, thinking, max_tokens, check) plus,
in memory only, `answer`: the assistant message expected word for word, and `turn`.
"""

import json
import random

from ..render import FORMAT_INTRO, dumps
from . import needle
from .extract import Extraction
from .faq import Faq
from .talk import Talk
from .tasks import Tasks
from .tools import ToolTask
from .turn import draw, is_held_out

# Families and how many items of each; `_thinking` ones reason first.
COUNTS = {
    "faq": 150,
    "faq_thinking": 50,
    "talk": 60,
    "copy": 50,
    "reverse": 50,
    "sort": 50,
    "count": 50,
    "dates": 50,
    "sum2": 50,
    "sum3": 50,
    "sum2_thinking": 30,
    "sum3_thinking": 30,
    "count_thinking": 30,
    "json": 50,
    "tool": 50,
    "tool_thinking": 30,
}
NEEDLE_LENGTHS = (256, 512, 1024, 2048, 3800)
NEEDLE_DEPTHS = 5  # places, from the start to the end of the text
NEEDLES_PER_PLACE = 3  # items per length and place


def _item(family, turn, check, thinking=False, **more):
    answer = dict(content=turn.answer)
    if turn.calls:
        answer = dict(content="", tool_calls=turn.calls)
    if thinking:
        answer["reasoning"] = turn.reasoning
    return dict(
        family=family,
        messages=[dict(role="user", content=turn.user)],
        thinking=thinking,
        check=check,
        answer=answer,
        turn=turn,
        **more,
    )


def _exact(family, turn, thinking=False):
    return _item(family, turn, dict(kind="exact", value=turn.answer), thinking)


def _tool(family, turn, task, thinking=False):
    value = [dict(name=call["name"], arguments=call["arguments"]) for call in turn.calls]
    return _item(family, turn, dict(kind="tool_call", value=value), thinking, tools=task.schemas)


def _json(rng, in_system):
    """The schema stands in the system message, exactly as a response format is rendered, or in the
    question.
    """
    task = Extraction(rng)
    turn = draw(task.make, rng, held=True)
    system = (
        [dict(role="system", content="\n\n" + FORMAT_INTRO + dumps(task.schema))]
        if in_system
        else []
    )
    if not in_system:
        turn.user = f"JSON schema: {dumps(task.schema)}\n{turn.user}"
    item = _item("json", turn, dict(kind="json", value=json.loads(turn.answer)))
    return dict(item, messages=system + item["messages"])


def _needles(rng):
    for length in NEEDLE_LENGTHS:
        for number in range(NEEDLE_DEPTHS * NEEDLES_PER_PLACE):
            wanted = number % NEEDLE_DEPTHS / (NEEDLE_DEPTHS - 1)
            # Codes nobody asks for are in the text too; the one asked for lies nearest to the
            # wanted depth.
            hidden = needle.Needles(rng, length - 40, max(2, length // 256), is_held_out)
            owner = min(hidden.depth, key=lambda o: abs(hidden.depth[o] - wanted))
            turn = next(t for t in hidden.turns(rng) if hidden.pairs[owner] == t.answer)
            turn.user = hidden.text + "\n" + turn.user
            yield dict(_exact("needle", turn), depth=round(hidden.depth[owner], 2), length=length)


def held_out(pool, seed=0, share=1.0, facts=None, needles=True):
    """All items, deterministic; `share` thins every family for quick looks during training."""
    rng, tasks, items = random.Random(f"held out:{seed}"), Tasks(pool), []
    count = {family: max(1, round(n * share)) for family, n in COUNTS.items()}
    for family, source in (("faq", Faq(facts)), ("talk", Talk())):
        turns = source.held_turns()
        rng.shuffle(turns)
        items += [_exact(family, turn) for turn in turns[: count[family]]]
        if family == "faq":
            items += [
                _exact("faq_thinking", turn, True) for turn in turns[-count["faq_thinking"] :]
            ]
    for family in count:
        task = family.removesuffix("_thinking")
        if task not in ("faq", "talk", "json", "tool"):
            items += [
                _exact(family, draw(getattr(tasks, task), rng, held=True), family != task)
                for _ in range(count[family])
            ]
    items += [_json(rng, number % 2 == 0) for number in range(count["json"])]
    for family in ("tool", "tool_thinking"):
        for _ in range(count[family]):
            task = ToolTask(rng)
            items.append(_tool(family, draw(task.make, rng, held=True), task, family != "tool"))
    if needles:
        items += list(_needles(rng))
    numbers = {}
    for item in items:
        numbers[item["family"]] = number = numbers.get(item["family"], 0) + 1
        item["id"] = f"{item['family']}-{number:03}"
    return items


def as_line(item, max_tokens):
    """The item as `kuruma eval` reads it."""
    line = dict(id=item["id"], family=item["family"], messages=item["messages"])
    if item.get("tools"):
        line["tools"] = [dict(type="function", function=tool) for tool in item["tools"]]
    line.update({name: item[name] for name in ("depth", "length") if name in item})  # needles
    line.update(thinking=item["thinking"], max_tokens=max_tokens, check=item["check"])
    return json.dumps(line, ensure_ascii=False)


def write(items, tokenizer, path):
    """The committed file; answers get room for half as many tokens again as they need."""
    from ..evaluate import answer_ids

    with open(path, "w", encoding="utf-8") as out:
        for item in items:
            ids, start = answer_ids(item, tokenizer)
            out.write(as_line(item, (len(ids) - start) * 3 // 2 + 8) + "\n")
