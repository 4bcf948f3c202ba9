"""Prompt text of a conversation exactly as the engine renders it, as segments of control and plain
text.

A conversation is a dictionary: messages (role, content, reasoning, tool_calls of name and
arguments), and optionally tools, thinking, effort, schema (a response format: a schema or
"json_object").
"""

import json
from dataclasses import dataclass

from .tokenizer import ASSISTANT, BOS, DSML, END_THINK, EOS, SYSTEM, THINK, USER

_CALLS, _END_CALLS = "<｜DSML｜ calls>", "</｜DSML｜ calls>"
_FORMAT_LINES = """<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>
"""
TOOLS_INTRO = (
    """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<｜DSML｜ calls>" block like the following:

"""
    + _FORMAT_LINES
    + """
String parameters should be specified as is and set `string="true"`. For all other types (numbers, \
booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside \
<think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"""
)
# Only for training: most tool rows spend their tokens on calls instead of the unchanging
# instructions.
ABRIDGED_INTRO = "## Tools\n\n### Available Tool Schemas\n\n"
TOOLS_OUTRO = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
FORMAT_INTRO = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
EFFORT = (
    "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
)


@dataclass
class Segment:
    text: str
    special: bool
    answer: bool  # the model is to produce it


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


class _Writer:
    def __init__(self):
        self.segments = []

    def special(self, text, answer=False):
        self.segments.append(Segment(text, True, answer))

    def plain(self, text, answer=False):
        last = self.segments[-1]
        if not text:
            return
        if not last.special and last.answer == answer:
            last.text += text
        else:
            self.segments.append(Segment(text, False, answer))

    def template(self, text, answer=False):
        """Text in which <think>, </think> and the DSML mark are control tokens."""
        while text:
            at = {token: text.find(token) for token in (THINK, END_THINK, DSML) if token in text}
            if not at:
                return self.plain(text, answer)
            token = min(at, key=at.get)
            self.plain(text[: at[token]], answer)
            self.special(token, answer)
            text = text[at[token] + len(token) :]


def _schema_line(tool):
    return dumps(
        {
            "name": tool["name"],
            "description": tool.get("description", ""),
            "parameters": tool.get("parameters", {}),
        }
    )


def _calls(calls):
    """Text of a call block; control tokens in it are found by `template`."""
    lines = []
    for call in calls:
        parameters = [
            f'<｜DSML｜ parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
            f"{value if isinstance(value, str) else dumps(value)}</｜DSML｜ parameter>"
            for key, value in call["arguments"].items()
        ]
        lines.append(
            f'<｜DSML｜ invoke name="{call["name"]}">\n'
            + "\n".join(parameters)
            + "\n</｜DSML｜ invoke>"
        )
    return "\n\n" + _CALLS + "\n" + "\n".join(lines) + "\n" + _END_CALLS


def answer_text(message, thinks):
    """What the model must produce for an assistant message, control tokens spelled, without the end
    token.
    """
    text = f"{message.get('reasoning', '')}{END_THINK}" if thinks else ""
    text += message.get("content", "")
    return text + (_calls(message["tool_calls"]) if message.get("tool_calls") else "")


class _Renderer:
    def __init__(self, conversation, abridged):
        self.c, self.out, self.abridged = conversation, _Writer(), abridged
        self.messages = list(conversation["messages"])
        self.tools, self.thinking = conversation.get("tools"), conversation.get("thinking", False)
        needs_system = self.tools or conversation.get("schema")
        if needs_system and (not self.messages or self.messages[0]["role"] != "system"):
            self.messages.insert(0, dict(role="system", content=""))

    def run(self, last_reasoning, header):
        """`last_reasoning` keeps the thought of a final assistant message, as it was produced."""
        self.out.special(BOS)
        for i, message in enumerate(self.messages):
            if i == 0 and (self.thinking or message["role"] == "system"):
                self.out.special(SYSTEM)
                if self.thinking:
                    self.out.plain(EFFORT.format(self.c.get("effort", 75)))
            if message["role"] == "system":
                self.system(i, message)
            elif message["role"] == "assistant":
                keeps = bool(self.tools) or (last_reasoning and i == len(self.messages) - 1)
                self.assistant(message, self.thinking and i > 0 and keeps)
            else:
                self.user(i, message)
        if header:
            self.out.special(ASSISTANT)
            self.out.special(THINK if self.thinking else END_THINK)
        return self.out.segments

    def system(self, i, message):
        if i > 0:
            self.out.special(SYSTEM)
        self.out.plain(message.get("content", ""))
        if i > 0:
            return
        if self.tools:
            self.out.template("\n\n" + (ABRIDGED_INTRO if self.abridged else TOOLS_INTRO))
            self.out.plain("\n".join(map(_schema_line, self.tools)) + TOOLS_OUTRO)
        if schema := self.c.get("schema"):
            shown = {"type": "json_object"} if schema == "json_object" else schema
            self.out.plain("\n\n" + FORMAT_INTRO + dumps(shown))

    def user(self, i, message):
        if i > 0 and self.messages[i - 1]["role"] in ("user", "tool"):
            self.out.plain("\n\n")
        else:
            self.out.special(USER)
        tool = message["role"] == "tool"
        self.out.plain(
            f"<tool_result>{message['content']}</tool_result>" if tool else message["content"]
        )

    def assistant(self, message, thinks):
        self.out.special(ASSISTANT)
        if thinks:
            self.out.special(THINK)
            self.out.plain(message.get("reasoning", ""), True)
            self.out.special(END_THINK, True)
        else:
            self.out.special(END_THINK)
        self.out.plain(message.get("content", ""), True)
        if message.get("tool_calls"):
            self.out.template(_calls(message["tool_calls"]), True)
        self.out.special(EOS, True)


def render_prompt(conversation):
    """Segments of the prompt, ending with the header of the answer to come."""
    return _Renderer(conversation, False).run(last_reasoning=False, header=True)


def render_training(conversation, abridged=False):
    """Segments of a whole conversation that ends with an answer."""
    return _Renderer(conversation, abridged).run(last_reasoning=True, header=False)


def encode(segments, tokenizer):
    """(ids, wanted): plain text between two control tokens is encoded as one string."""
    ids, wanted, plain, answer = [], [], "", False
    for segment in [*segments, None]:
        if segment is not None and not segment.special:
            plain, answer = plain + segment.text, segment.answer
            continue
        if plain:
            part = tokenizer.encode(plain)
            ids += part
            wanted += [answer] * len(part)
            plain = ""
        if segment is not None:
            ids.append(tokenizer.special(segment.text))
            wanted.append(segment.answer)
    return ids, wanted
